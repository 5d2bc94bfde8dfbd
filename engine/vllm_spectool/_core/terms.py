"""What a request asks for: whether it is opted in, and what rules a continuation out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from vllm_spectool._core.outcomes import Decline

KEY_ARGUMENT = "spectool_key"
"""Name in `vllm_xargs`, which vLLM hands on as `SamplingParams.extra_args`."""
DRAFTS_ARGUMENT = "spectool_drafts"
"""Name in `vllm_xargs`: 0 for no drafts."""
SHORTEST_KEY = 22
"""Characters of 128 bits in base64."""
LONGEST_KEY = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The sampling parameters that matter; vLLM's names and defaults."""

    seed: int | None = None
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    """Those of the request, without the model's own."""
    n: int = 1
    prompt_logprobs: int | None = None
    ignore_eos: bool = False
    beam_search: bool = False
    grammar: bool = False
    """A structured output, also one that a tool parser asked for."""

    @property
    def bar(self) -> Decline | None:
        """The first thing that a continuation could not keep; None if there is none.

        Log probabilities of a turn's own tokens are kept, so that `logprobs` is not among them.
        """
        bars: dict[Decline, bool] = {
            "seed": self.seed is not None,
            "stop": bool(self.stop) or bool(self.stop_token_ids),
            "n": self.n != 1,
            "prompt_logprobs": self.prompt_logprobs is not None,
            "ignore_eos": self.ignore_eos,
            "beam_search": self.beam_search,
            "grammar": self.grammar,
        }
        return next((name for name, barred in bars.items() if barred), None)


def key_digest(key: object) -> str | None:
    """Return what the store knows a key by; None where `key` is no key.

    A key is 22 to 256 printable ASCII characters without blanks: at least 128 random bits.
    """
    if not isinstance(key, str) or not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
        return None
    if not key.isascii() or not key.isprintable() or " " in key:
        return None
    return sha256(key.encode()).hexdigest()


def is_opted_in(extra_args: Mapping[str, Any] | None) -> bool:
    """Say whether a request names a key at all; `key_digest` says whether it is one."""
    return bool(extra_args) and KEY_ARGUMENT in extra_args


def drafts_key(extra_args: Mapping[str, Any] | None) -> str | None:
    """Return the digest of the key whose drafts a request may be offered; None for no drafts."""
    if not extra_args or str(extra_args.get(DRAFTS_ARGUMENT)) == "0":
        return None
    return key_digest(extra_args.get(KEY_ARGUMENT))


def room(max_tokens: int | None, *, prompt_tokens: int, context_tokens: int) -> int | None:
    """Return the most tokens a turn may have, as a round trip would be granted.

    Args:
        max_tokens: What the request asked for; None for all that fits.
        prompt_tokens: What stands before the turn.
        context_tokens: What the model can hold.

    Returns:
        None where a round trip would be refused: it does not fit.
    """
    left = context_tokens - prompt_tokens
    if left <= 0 or (max_tokens is not None and max_tokens > left):
        return None
    return left if max_tokens is None else max_tokens
