"""How models write conversations, and what is asked of each."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import conversations
import live_prompts  # beside the tests of a live server


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
    may_stop: bool = False
    """Whether the response may end after its first turn instead of going on in place."""


@dataclass(frozen=True, kw_only=True)
class Style:
    """How a tiny model's conversations are written."""

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

    @property
    def model(self) -> str:
        """The style that its model was trained in."""
        return self.trained_as or self.name


STYLES = (
    Style(name="hermes", parser="hermes", end="<|im_end|>"),
    Style(name="qwen", parser="hermes", end="<|im_end|>", may_decline=("sentence",)),
    Style(name="llama3", parser="llama3_json", end="<|eot_id|>", may_decline=("sentence",)),
    Style(name="mistral", parser="mistral", end="</s>"),
    Style(name="mistral_ids", parser="mistral", end="</s>", trained_as="mistral", declines=True),
)


def smollm2_questions() -> Iterator[Question]:
    """Yield single calls, which SmolLM2 makes by imitation."""
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


def tiny_questions(style: Style) -> Iterator[Question]:
    """Yield all that a tiny model knows, and an output that holds the token that ends a turn."""
    for kind in conversations.KINDS:
        for place, city in enumerate(conversations.CITIES):
            yield Question(
                kind=kind,
                name=city,
                messages=conversations.question(kind, place),
                outputs=conversations.outputs(kind, place),
                tools=conversations.TOOLS,
                turns=len([*conversations.answers(kind, place)]),
                may_stop=style.declines or kind in style.may_decline,
            )
    told = conversations.outputs("single", 0)
    yield Question(
        kind="special_token",
        name=conversations.CITIES[0],
        messages=conversations.question("single", 0),
        outputs={call: f"{said}{style.end} and so on" for call, said in told.items()},
        tools=conversations.TOOLS,
        turns=2,
        may_stop=True,
    )
