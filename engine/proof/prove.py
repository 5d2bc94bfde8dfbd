"""Compares responses that go on in place with round trips, token by token, on a real vLLM.

Float32, one request at a time. Each question is asked by two round trips first (A/A); the claim is
that no response in place differs more often than those do. Needs what `set_up_vllm.sh` makes.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "tests" / "vllm" / "live")]

import conversations  # noqa: E402 - found by the line above
import live_prompts  # noqa: E402 - beside the tests of a live server
from langchain_spectool.bench.engine.bars import SIGNIFICANT, exceeds  # noqa: E402
from langchain_spectool.bench.engine.server import Start, packages, started  # noqa: E402
from langchain_spectool.bench.report import machine  # noqa: E402
from live_client import Client, Turn  # noqa: E402 - the same

SMOLLM2_TEMPLATE = HERE.parent / "tests" / "vllm" / "smollm2_tools.jinja"
FLAGS = ("--served-model-name", "smollm2", "--dtype", "float32", "--enforce-eager")
NOT_RUN = {
    "draft sampling": "drafts (O2) are not built",
    "scheduler class": "no scheduler of ours: vLLM's own is used, async or not",
    "GPU": "see gpu_check.sh",
}


@dataclass(frozen=True, kw_only=True)
class Style:
    """How a model's conversations are written."""

    name: str
    parser: str
    end: str
    """The special token that is put into an output, which then must not be put in."""
    trained_as: str | None = None
    """The style whose tiny model serves; its own unless given."""
    declines: bool = False
    """Whether this template drifts, so that nothing may go on in place."""
    may_decline: Sequence[str] = ()
    """Kinds whose calls vLLM's parser reads in another way than the model wrote them."""


STYLES = (
    Style(name="hermes", parser="hermes", end="<|im_end|>"),
    Style(name="qwen", parser="hermes", end="<|im_end|>", may_decline=("sentence",)),
    Style(name="llama3", parser="llama3_json", end="<|eot_id|>", may_decline=("sentence",)),
    Style(name="mistral", parser="mistral", end="</s>"),
    Style(name="mistral_ids", parser="mistral", end="</s>", trained_as="mistral", declines=True),
)


@dataclass(frozen=True, kw_only=True)
class Question:
    """One thing to ask, and what the tools will say."""

    kind: str
    name: str
    messages: Sequence[Mapping[str, Any]]
    outputs: Mapping[tuple[str, str], str]
    tools: Sequence[Mapping[str, Any]]
    turns: int
    """How many a round trip has to have."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What came of one question, asked three times."""

    style: str
    kind: str
    name: str
    stream: bool
    turns: int
    """Of the round trip."""
    expected_turns: int
    continued: int
    """Turns that went on in place."""
    may_decline: bool
    aa_differs: bool
    differs: bool
    """Whether any turn in place is not the round trip's."""

    @property
    def amiss(self) -> bool:
        """Whether the model did not know it, or the response stopped where it had to go on."""
        going_on = self.continued == self.turns - 1 == self.expected_turns - 1
        return not (self.may_decline or going_on)


def compared(client: Client, style: str, question: Question, *, stream: bool, may: bool) -> Row:
    """Ask a question by two round trips, then in place."""
    asked = {"stream": stream, "tools": question.tools}
    first, again = (
        client.round_trip(question.messages, question.outputs, **asked) for _ in range(2)
    )
    if may:
        # What follows a decline is the client's; its prompt may hold ids that are drawn anew.
        first, again = first[:1], again[:1]
    place: list[Turn] = client.ask(question.messages, outputs=question.outputs, **asked)
    return Row(
        style=style,
        kind=question.kind,
        name=question.name,
        stream=stream,
        turns=len(first),
        expected_turns=question.turns,
        continued=len(place) - 1,
        may_decline=may,
        aa_differs=first != again,
        differs=place != first[: len(place)],
    )


def smollm2_questions() -> Iterator[Question]:
    """Yield single calls, which this model makes by imitation."""
    for city in live_prompts.CITIES:
        call = ("get_weather", json.dumps({"city": city}))
        yield Question(
            kind="single",
            name=city,
            messages=live_prompts.single(city),
            outputs={call: live_prompts.WEATHER[city]},
            tools=live_prompts.TOOLS,
            turns=2,
        )


def tiny_questions(end: str) -> Iterator[Question]:
    """Yield all that a tiny model knows, and outputs that hold the token that ends a turn."""
    for kind in conversations.KINDS:
        for place, city in enumerate(conversations.CITIES):
            yield Question(
                kind=kind,
                name=city,
                messages=conversations.question(kind, place),
                outputs=conversations.outputs(kind, place),
                tools=conversations.TOOLS,
                turns=len([*conversations.answers(kind, place)]),
            )
    told = conversations.outputs("single", 0)
    yield Question(
        kind="special_token",
        name=conversations.CITIES[0],
        messages=conversations.question("single", 0),
        outputs={call: f"{said}{end} and so on" for call, said in told.items()},
        tools=conversations.TOOLS,
        turns=2,
    )


def smollm2(python: Path, home: Path) -> list[Row]:
    """Ask SmolLM2."""
    flags = [*FLAGS, "--max-model-len", "2048", "--chat-template", str(SMOLLM2_TEMPLATE)]
    with started(Start(python=python, model=home / "smollm2", flags=flags)) as server:
        client = Client(server.url)
        with client.http:
            return [
                compared(client, "smollm2", question, stream=stream, may=False)
                for question in smollm2_questions()
                for stream in (False, True)
            ]


def tiny(python: Path, home: Path, style: Style) -> list[Row]:
    """Ask the tiny model of a style."""
    template = HERE / "templates" / f"{style.name}.jinja"
    flags = [*FLAGS, "--tool-call-parser", style.parser, "--chat-template", str(template)]
    model = home / f"tiny-{style.trained_as or style.name}"
    with started(Start(python=python, model=model, flags=flags)) as server:
        client = Client(server.url)
        with client.http:
            return [
                compared(
                    client,
                    style.name,
                    question,
                    stream=stream,
                    may=question.kind in (*style.may_decline, "special_token") or style.declines,
                )
                for question in tiny_questions(style.end)
                for stream in (False, True)
            ]


def trained(python: Path, home: Path, style: str) -> dict[str, Any]:
    """Train the tiny model of a style.

    Raises:
        subprocess.CalledProcessError: It did not learn all in time.
    """
    command = [python, HERE / "train.py", home / "smollm2", style, home / f"tiny-{style}"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return json.loads(done.stdout.splitlines()[-1])


def real_templates(python: Path, home: Path) -> dict[str, str]:
    """Look at the templates of `SPECTOOL_TEMPLATES`, or say that there are none."""
    folder = os.environ.get("SPECTOOL_TEMPLATES")
    if not folder:
        return {}
    command = [python, HERE / "templates_check.py", home / "smollm2", folder]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return json.loads(done.stdout)


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Sum up by style and kind."""
    groups = dict.fromkeys((row.style, row.kind) for row in rows)
    return [
        {
            "style": style,
            "kind": kind,
            "asked": len(group),
            "turns": sum(row.turns for row in group),
            "continued": sum(row.continued for row in group),
            "aa_differ": sum(row.aa_differs for row in group),
            "differ": sum(row.differs for row in group),
        }
        for style, kind in groups
        for group in [[row for row in rows if (row.style, row.kind) == (style, kind)]]
    ]


def proof(home: Path, only: Sequence[str]) -> dict[str, Any]:
    """Do all of it; return the JSON."""
    began_s = time.perf_counter()
    python = home / "venv" / "bin" / "python"
    styles = [style for style in STYLES if style.name in only]
    training = [
        trained(python, home, name)
        for name in dict.fromkeys(style.trained_as or style.name for style in styles)
    ]
    rows = smollm2(python, home) if "smollm2" in only else []
    for style in styles:
        print(f"{style.name}: {time.perf_counter() - began_s:.0f} s", file=sys.stderr)
        rows += tiny(python, home, style)
    templates = real_templates(python, home)
    none = {} if templates else {"real templates": "SPECTOOL_TEMPLATES names no folder"}
    aa, ours = (sum(getattr(row, name) for row in rows) for name in ("aa_differs", "differs"))
    p = exceeds(ours, aa, len(rows))
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "python": platform.python_version(),
        "versions": dict(packages(python)),
        "settings": {"dtype": "float32", "at_once": 1, "temperature": 0, "flags": FLAGS},
        "training": training,
        "summary": summary(rows),
        "asked": len(rows),
        "aa_differ": aa,
        "differ": ours,
        "p": round(p, 4),
        "amiss": [asdict(row) for row in rows if row.amiss],
        "real_templates": templates,
        "not_run": {**NOT_RUN, **none},
        "proved": p >= SIGNIFICANT and not any(row.amiss for row in rows),
        "wall_s": round(time.perf_counter() - began_s, 1),
    }


def main() -> int:
    """Prove it, and write what was found; exit status 1 if it does not hold."""
    names = ("smollm2", *(style.name for style in STYLES))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "result.json", metavar="FILE")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    given = parser.parse_args()
    home = Path(os.environ.get("SPECTOOL_ENGINE_HOME", HERE.parent / ".vllm"))
    found = proof(home, given.only)
    given.out.write_text(f"{json.dumps(found, indent=2)}\n", "utf-8")
    for row in found["summary"]:
        print(" ".join(f"{name} {value}" for name, value in row.items()))
    print(f"A/A differs in {found['aa_differ']} of {found['asked']}, O3 in {found['differ']}")
    print(f"{'proved' if found['proved'] else 'NOT PROVED'}; the whole of it is in {given.out}")
    return 0 if found["proved"] else 1


if __name__ == "__main__":
    sys.exit(main())
