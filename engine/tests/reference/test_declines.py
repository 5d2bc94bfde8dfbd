"""Why a turn of the reference engine does not go on, and that its client has it all the same."""

import asyncio
import json
from typing import Any

import pytest

from vllm_spectool._core.decide import ContinuationLimits
from vllm_spectool.errors import MalformedError
from vllm_spectool.reference import (
    CHATML,
    DRIFTING,
    LLAMA,
    Call,
    Reference,
    ReferenceSettings,
    Turn,
    call,
    scripted,
)

LOOK = {"name": "look", "params": {"x": 1}, "output": "seen"}
LOOKING = scripted(call("look", x=1), "Done.")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"seed": 0}, "seed"),
        ({"stop": "never said"}, "stop"),
        ({"stop": ["never said"]}, "stop"),
        ({"stop_token_ids": [3]}, "stop"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"use_beam_search": True}, "beam_search"),
        ({"response_format": {"type": "json_object"}}, "grammar"),
        ({"tool_choice": "required"}, "grammar"),
        ({"parallel_tool_calls": False}, "grammar"),
        ({"max_tokens": 20}, "unfinished"),
        ({"tools": []}, "answered"),
        ({"tool_choice": "none"}, "answered"),
    ],
)
def test_declines_are_counted_by_reason(
    desk: Any, nothing_left: Any, fields: Any, reason: str
) -> None:
    """And the answer is the plain one."""

    async def case() -> None:
        service = Reference(LOOKING)
        plain = await desk.ask(service, opted_in=False, **fields)
        await desk.post(service, LOOK, request_id="2")
        said = await desk.ask(service, "2", **fields)
        assert desk.turns(said) == desk.turns(plain)
        assert desk.counts(service) == {reason: 1}
        assert service.left() == nothing_left

    asyncio.run(case())


@pytest.mark.parametrize(
    ("said", "outputs", "reason"),
    [
        ("<tool_call>\n{}\n</tool_call>", [LOOK], "malformed_call"),
        ("<tool_call>\n[1]\n</tool_call>", [LOOK], "malformed_call"),
        ('<tool_call>\n{"name": "look", "arguments": 1}\n</tool_call>', [LOOK], "malformed_call"),
        ('<tool_call>\n{"name": "look"', [LOOK], "malformed_call"),
        (
            '<tool_call>\n{"name": "look","arguments":{"x":1}}\n</tool_call>',
            [LOOK],
            "template_drift",
        ),
        (
            f"{CHATML.write('', [Call(name='look', params={'x': 1})])} more",
            [LOOK],
            "template_drift",
        ),
        (call("look", x=1), [{**LOOK, "output": [{"type": "image"}]}], "not_text"),
        (Turn(calls=[Call(name="look", params={"x": 1}), Call(name="find")]), [LOOK], "partial"),
        (call("look", x=1.0), [LOOK], "no_entry"),
    ],
    ids=str,
)
def test_turns_that_cannot_go_on_are_plain(
    desk: Any, nothing_left: Any, said: Any, outputs: Any, reason: str
) -> None:
    """Whatever a model says; streaming brings the same."""

    async def case() -> None:
        service = Reference(scripted(said))
        await desk.post(service, *outputs)
        response = await desk.ask(service)
        assert "spectool" not in response
        assert desk.counts(service) == {reason: 1}
        await desk.post(service, *outputs, request_id="2")
        events = [each async for each in desk.begin(service, "2").events()]
        chunks = [json.loads(each.removeprefix("data: ")) for each in events[:-1]]
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        content = "".join(delta.get("content") or "" for delta in deltas)
        assert content == (response["choices"][0]["message"]["content"] or "")
        assert chunks[-1]["choices"][0]["finish_reason"] == response["choices"][0]["finish_reason"]
        assert events[-1] == "data: [DONE]\n\n"
        assert service.left() == nothing_left

    asyncio.run(case())


def test_a_drifting_template_never_goes_on(desk: Any) -> None:
    """Each hit is a plain miss."""

    async def case() -> None:
        service = Reference(LOOKING, style=DRIFTING)
        await desk.post(service, LOOK)
        assert len(desk.turns(await desk.ask(service))) == 1
        assert desk.counts(service) == {"template_drift": 1}

    asyncio.run(case())


@pytest.mark.parametrize("style", [CHATML, LLAMA])
def test_an_output_with_a_special_token_is_not_written(desk: Any, style: Any) -> None:
    """In a block, too."""

    async def case(output: Any) -> None:
        service = Reference(LOOKING, style=style)
        await desk.post(service, {**LOOK, "output": output})
        assert len(desk.turns(await desk.ask(service))) == 1
        assert desk.counts(service) == {"special_tokens": 1}

    asyncio.run(case(f"a{style.stop_token}b"))
    asyncio.run(case([{"type": "text", "text": "a"}, {"type": "text", "text": style.stop_token}]))


@pytest.mark.parametrize(("turns", "said"), [(1, 1), (2, 2), (8, 4)])
def test_turns_are_bounded(desk: Any, turns: int, said: int) -> None:
    """The call that would make one too many reaches the client."""

    async def case() -> None:
        settings = ReferenceSettings(continuation_limits=ContinuationLimits(turns=turns))
        looking = [call("look", x=1)] * 3
        service = Reference(scripted(*looking), settings=settings)
        await desk.post(service, LOOK)
        assert len(desk.turns(await desk.ask(service))) == said

    asyncio.run(case())


def test_a_continuation_that_does_not_fit_is_declined(desk: Any) -> None:
    """The client learns from its own request that the context is full."""

    async def case() -> None:
        settings = ReferenceSettings(continuation_limits=ContinuationLimits(context_tokens=400))
        service = Reference(LOOKING, settings=settings)
        await desk.post(service, {**LOOK, "output": "x" * 400})
        assert len(desk.turns(await desk.ask(service))) == 1
        assert desk.counts(service) == {"context_full": 1}
        with pytest.raises(MalformedError, match="the context holds 400"):
            await desk.round_trip(service, ["x" * 400])

    asyncio.run(case())
