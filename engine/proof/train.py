"""Trains a Llama of two layers to know the conversations by heart, in one style of writing.

Usage: train.py TOKENIZER_FOLDER STYLE OUT_FOLDER, with the interpreter that has vLLM's packages.
STYLE is that of a template; `dice` is another model in the hermes style, which knows one call and
throws dice for its argument. Prints one line of JSON. Exits with status 1 if the model does not
know all of it in time.
"""

import json
import math
import shutil
import sys
import time
from pathlib import Path
from random import Random

import torch
from conversations import CITIES, DIE, KINDS, THROWS, TOOLS, thrown, whole
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).parent
LIMIT_S = 170.0
"""Of the processor, so that others at work do not make it fail."""
SEED = 7
BATCH = 8
RATE = 3e-3
WIDTH = 128
GOOD = 0.002
"""Mean loss below which greedy decoding is sure of every token."""
IGNORED = -100
DICE = "dice"
THROWN = 256
"""Conversations of the model that throws dice."""
SPECIAL = {
    "hermes": ("<|im_end|>",),
    "qwen": ("<|im_end|>",),
    "llama3": (
        *("<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
        "<|python_tag|>",
    ),
    "mistral": (
        *("</s>", "<s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
        *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    ),
}
"""The tokens of each style that no text may hold; the first ends a turn."""
WHOLE = {"llama3": ("\n\n",)}
"""One token in the style's own tokenizer. SmolLM2's reads it in two ways, by what comes after: a
turn would then not begin where its prompt ends."""


def main(folder: Path, style: str, out: Path) -> int:
    """Train and save; return the exit status."""
    began_s = time.monotonic()
    written = "hermes" if style == DICE else style
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # so small a model is not worth waiting for a second one
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = (HERE / "templates" / f"{written}.jinja").read_text("utf-8")
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL[written])})
    tokenizer.add_tokens(list(WHOLE.get(written, ())))
    tokenizer.eos_token = SPECIAL[written][0]
    ids, targets = dataset(tokenizer, conversations(style))
    used, ids = torch.unique(ids, return_inverse=True)
    targets = torch.where(targets == IGNORED, targets, torch.searchsorted(used, targets))
    small = LlamaForCausalLM(settings(tokenizer, len(used)))
    good = GOOD + (floor(targets) if style == DICE else 0.0)
    steps, loss = fit(small, ids, targets, unused=len(tokenizer) - len(used), good=good)
    model = grown(small, used, tokenizer)
    if out.exists():
        shutil.rmtree(out)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    seconds = round(time.monotonic() - began_s, 1)
    print(json.dumps({"style": style, "steps": steps, "loss": round(loss, 5), "seconds": seconds}))
    return 0 if loss < good else 1


def conversations(style: str) -> list[list]:
    """Return all that a model has to know."""
    if style == DICE:
        random = Random(SEED)  # noqa: S311 - dice
        return [thrown(random) for _ in range(THROWN)]
    return [whole(kind, place) for kind in KINDS for place in range(len(CITIES))]


def floor(targets: torch.Tensor) -> float:
    """Return the mean loss of a model that knows the odds of the dice, and all the rest."""
    entropy = -sum(odds * math.log(odds) for odds in DIE.values())
    return THROWS * len(targets) * entropy / (targets != IGNORED).sum().item()


def dataset(tokenizer, known: list[list]) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN001 - transformers' own
    """Return conversations and, of the same shape, the tokens a model has to say."""
    rows = [encoded(tokenizer, messages) for messages in known]
    length = max(len(ids) for ids, _ in rows)
    pad = tokenizer.eos_token_id
    ids = [row + [pad] * (length - len(row)) for row, _ in rows]
    targets = [row + [IGNORED] * (length - len(row)) for _, row in rows]
    return torch.tensor(ids), torch.tensor(targets)


def encoded(tokenizer, messages: list) -> tuple[list[int], list[int]]:  # noqa: ANN001 - as above
    """Return a conversation's tokens, and those of the assistant up to the end of each turn."""
    ids = render(tokenizer, messages, prompt=False)
    targets = [IGNORED] * len(ids)
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        start = len(render(tokenizer, messages[:index], prompt=True))
        end = ids.index(tokenizer.eos_token_id, start) + 1
        targets[start:end] = ids[start:end]
    return ids, targets


def render(tokenizer, messages: list, *, prompt: bool) -> list[int]:  # noqa: ANN001 - as above
    """Return the tokens that a server would make of messages."""
    text = tokenizer.apply_chat_template(
        messages, tools=TOOLS, add_generation_prompt=prompt, tokenize=False
    )
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def settings(tokenizer, vocabulary: int) -> LlamaConfig:  # noqa: ANN001 - as above
    """Return the shape of a model that knows so many tokens."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=WIDTH // 2,
        max_position_embeddings=1024,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=None,
        tie_word_embeddings=False,
        dtype="float32",
    )


def fit(
    small: LlamaForCausalLM, ids: torch.Tensor, targets: torch.Tensor, *, unused: int, good: float
) -> tuple[int, float]:
    """Train until the loss is good or time is up; return steps and the last mean loss.

    `unused` tokens never occur. In the grown model their logits are zero, which adds a constant
    to the softmax here.
    """
    began_s = time.process_time()
    optimizer = torch.optim.AdamW(small.parameters(), lr=RATE, weight_decay=0.0)
    steps, mean = 0, math.inf
    while mean >= good - GOOD / 2 and time.process_time() - began_s < LIMIT_S:
        losses = []
        for batch in torch.randperm(len(ids)).split(BATCH):
            hidden = small.model(input_ids=ids[batch]).last_hidden_state[:, :-1]
            wanted = targets[batch][:, 1:]
            said = wanted != IGNORED
            logits = small.lm_head(hidden[said])
            rest = torch.full((len(logits), 1), math.log(unused))
            loss = torch.nn.functional.cross_entropy(torch.cat((logits, rest), 1), wanted[said])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(small.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            steps += 1
        mean = sum(losses) / len(losses)
    return steps, mean


def grown(small: LlamaForCausalLM, used: torch.Tensor, tokenizer) -> LlamaForCausalLM:  # noqa: ANN001
    """Return a model of the whole vocabulary that says what `small` does."""
    model = LlamaForCausalLM(settings(tokenizer, len(tokenizer)))
    state = small.state_dict()
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        rows = torch.zeros(len(tokenizer), WIDTH)
        rows[used] = state[name]
        state[name] = rows
    model.load_state_dict(state)
    return model


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
