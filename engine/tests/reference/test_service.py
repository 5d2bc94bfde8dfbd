"""The reference engine, in one event loop."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_spectool._core.decide import ContinuationLimits
from vllm_spectool.errors import MalformedError
from vllm_spectool.reference import (
    CHATML,
    DRIFTING,
    LLAMA,
    STYLES,
    Call,
    ModelError,
    Prompt,
    Reference,
    ReferenceSettings,
    Said,
    Turn,
    call,
    scripted,
)

LOOK = {"name": "look", "params": {"x": 1}, "output": "seen"}
LOOKING = scripted(call("look", x=1), "Done.")


def counts(service: Reference) -> dict[str, int]:
    """Return the turns counted so far."""
    counted = service.store.tally.snapshot()
    return {
        name.removeprefix("turns."): count for name, count in counted.items() if "turns" in name
    }


def test_a_post_during_the_request_is_in_time(desk: Any, gate: Any, nothing_left: Any) -> None:
    """It has until the last token of the call."""

    async def case() -> None:
        service = Reference(LOOKING, sleep=gate.sleep)
        response = desk.begin(service)
        whole = asyncio.create_task(response.whole())
        await gate.step(5)
        assert service.engine.running
        assert await desk.post(service, LOOK) == 1
        await gate.step(200)
        assert len(desk.turns(await whole)) == 2
        assert service.left() == nothing_left

    asyncio.run(case())


def test_a_post_after_the_call_is_too_late(desk: Any, nothing_left: Any) -> None:
    """The response has ended; nothing is kept for it."""

    async def case() -> None:
        service = Reference(LOOKING)
        assert len(desk.turns(await desk.ask(service))) == 1
        assert await desk.post(service, LOOK) == 0
        assert service.left() == nothing_left
        assert counts(service) == {"no_entry": 1}

    asyncio.run(case())


@pytest.mark.parametrize("steps", [0, 1, 5, 60, 90])
def test_a_client_that_goes_leaves_nothing(
    desk: Any, gate: Any, nothing_left: Any, steps: int
) -> None:
    """Before the first token, within the call, or within the continuation."""

    async def case() -> None:
        service = Reference(scripted(call("look", x=1), "a" * 200), sleep=gate.sleep)
        await desk.post(service, LOOK)
        response = desk.begin(service)
        await gate.step(steps)
        assert service.left()["resident"] == (steps > 50)
        assert service.left()["blocks"] > 0 or not steps
        response.close()
        response.close()
        assert service.left() == nothing_left
        await gate.step()

    asyncio.run(case())


def test_a_reader_that_is_cancelled_leaves_nothing(desk: Any, gate: Any, nothing_left: Any) -> None:
    """Streaming or not."""

    async def case(*, stream: bool) -> None:
        service = Reference(LOOKING, sleep=gate.sleep)
        response = desk.begin(service)

        async def read() -> None:
            async for _ in response.events():
                pass

        reader = asyncio.create_task(read() if stream else response.whole())
        await gate.step(3)
        reader.cancel()
        await asyncio.wait({reader})
        assert service.left() == nothing_left
        await gate.step()

    asyncio.run(case(stream=True))
    asyncio.run(case(stream=False))


def test_a_retry_with_the_same_id_keeps_the_outputs(
    desk: Any, gate: Any, nothing_left: Any
) -> None:
    """The first attempt ends while the second runs: both had the id, and the second is a hit."""

    async def case() -> None:
        service = Reference(LOOKING, sleep=gate.sleep)
        await desk.post(service, LOOK)
        first = desk.begin(service)
        await gate.step(3)
        second = asyncio.create_task(desk.begin(service).whole())
        await gate.step(3)
        first.close()
        await gate.step(200)
        assert len(desk.turns(await second)) == 2
        assert service.left() == nothing_left

    asyncio.run(case())


def test_one_use_answers_one_of_two_attempts(desk: Any) -> None:
    """The second attempt's call reaches the client."""

    async def case() -> list[int]:
        service = Reference(LOOKING)
        await desk.post(service, {**LOOK, "uses": 1})
        answers = await asyncio.gather(desk.ask(service), desk.ask(service))
        return sorted(len(desk.turns(each)) for each in answers)

    assert asyncio.run(case()) == [1, 2]


def test_an_output_lives_as_long_as_it_says(desk: Any, nothing_left: Any) -> None:
    """By the clock that the engine was given."""

    async def case() -> None:
        now = [100.0]
        service = Reference(LOOKING, clock=lambda: now[0])
        for waited, turns in ((4.9, 2), (5.0, 1)):
            request_id = str(waited)
            await desk.post(service, {**LOOK, "keep_alive": 5}, request_id=request_id)
            now[0] += waited
            assert len(desk.turns(await desk.ask(service, request_id))) == turns
        await desk.post(service, {**LOOK, "keep_alive": 5}, request_id="never asked for")
        assert service.left()["entries"] == 1
        now[0] += 5
        service.metrics()
        assert service.left() == nothing_left

    asyncio.run(case())


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
        assert counts(service) == {reason: 1}
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
        assert counts(service) == {reason: 1}
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
        assert counts(service) == {"template_drift": 1}

    asyncio.run(case())


@pytest.mark.parametrize("style", [CHATML, LLAMA])
def test_an_output_with_a_special_token_is_not_written(desk: Any, style: Any) -> None:
    """In a block, too."""

    async def case(output: Any) -> None:
        service = Reference(LOOKING, style=style)
        await desk.post(service, {**LOOK, "output": output})
        assert len(desk.turns(await desk.ask(service))) == 1
        assert counts(service) == {"special_tokens": 1}

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
        assert counts(service) == {"context_full": 1}
        with pytest.raises(MalformedError, match="the context holds 400"):
            await desk.round_trip(service, ["x" * 400])

    asyncio.run(case())


def test_a_model_that_raises_ends_its_request_only(desk: Any, nothing_left: Any) -> None:
    """The client is told, streaming or not; others go on."""

    def model(prompt: Prompt) -> str:
        if prompt.last.text == "fail":
            raise RuntimeError("no")
        return "Done."

    async def case() -> None:
        service = Reference(model)
        failing = [{"role": "user", "content": "fail"}]
        whole = desk.begin(service, messages=failing).whole()
        good, bad = await asyncio.gather(desk.ask(service, "2"), whole, return_exceptions=True)
        assert good["choices"][0]["message"]["content"] == "Done."
        assert isinstance(bad, ModelError)
        events = [each async for each in desk.begin(service, messages=failing).events()]
        assert '"code":500' in events[-2]
        assert service.left() == nothing_left

    asyncio.run(case())


@pytest.mark.parametrize("style", [CHATML, LLAMA])
def test_a_prompt_is_read_back(desk: Any, style: Any) -> None:
    """Who said what, and the outputs since, in any style."""
    seen: list[Prompt] = []

    def model(prompt: Prompt) -> Turn | str:
        seen.append(prompt)
        return "Done." if prompt.outputs else Turn(calls=[Call(name="look", params={"x": 1})] * 2)

    async def case() -> None:
        service = Reference(model, style=style)
        await desk.post(service, LOOK)
        asked = [{"role": "system", "content": "s"}, {"role": "user", "content": "a\nb"}]
        await desk.ask(service, messages=asked)

    asyncio.run(case())
    first, second = seen
    assert (first.last, first.outputs) == (Said("user", "a\nb"), ())
    expected = ["user", "assistant", "tool", "tool"]
    assert [each.role for each in second.said][-4:] == expected
    assert second.outputs == (("seen", "seen") if style is CHATML else ('"seen"', '"seen"'))
    assert [tool["function"]["name"] for tool in second.tools] == ["look", "find"]


def test_newest_requests_make_way_for_older_ones(desk: Any, nothing_left: Any) -> None:
    """With too few blocks for all, each still gets what it would get alone."""

    async def case() -> None:
        limits = ContinuationLimits(context_tokens=320)
        settings = ReferenceSettings(blocks=20, continuation_limits=limits)
        service = Reference(LOOKING, settings=settings)
        alone = desk.turns(await desk.ask(service, opted_in=False))
        for request_id in map(str, range(6)):
            await desk.post(service, LOOK, request_id=request_id)
        asked = [desk.ask(service, request_id) for request_id in map(str, range(6))]
        answers = [desk.turns(each) for each in await asyncio.gather(*asked)]
        assert all(len(each) == 2 for each in answers)
        assert all(each == answers[0] for each in answers)
        assert answers[0][0] == alone[0]
        assert service.engine.work.preemptions > 0
        assert service.left() == nothing_left

    asyncio.run(case())


def test_a_continuation_computes_less_than_a_round_trip(desk: Any) -> None:
    """Its prompt is there already, so only what is appended is computed; no step is lost."""

    async def work(*, opted_in: bool) -> Any:
        service = Reference(LOOKING)
        await desk.post(service, LOOK)
        await (desk.ask(service) if opted_in else desk.round_trip(service, ["seen"]))
        return service.engine.work

    resident, round_trip = asyncio.run(work(opted_in=True)), asyncio.run(work(opted_in=False))
    assert resident.steps == round_trip.steps
    assert resident.decoded_tokens == round_trip.decoded_tokens
    assert resident.prefill_tokens < 0.6 * round_trip.prefill_tokens


WORDS = st.lists(
    st.sampled_from(["a", " the", "é", "😀", "\n", '"', "<", "<tool_call"]), max_size=5
).map("".join)
PARAMS = st.dictionaries(WORDS, st.none() | st.integers(0, 2) | WORDS | st.just([1.5]), max_size=2)
CALLS = st.lists(
    st.builds(
        lambda name, params: Call(name=name, params=params),
        st.sampled_from(["look", "find"]),
        PARAMS,
    ),
    max_size=3,
)
TURNS = st.builds(lambda content, calls: Turn(content=content, calls=calls), WORDS, CALLS)


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # the desk keeps nothing
)
@given(st.sampled_from(list(STYLES.values())), st.lists(TURNS, max_size=4), st.data())
def test_whatever_is_said_reads_as_the_round_trip(
    desk: Any, style: Any, turns: list[Turn], data: st.DataObject
) -> None:
    """Any turns, any outputs, any of them posted: the turns are the first ones of the round trip.

    They go on exactly as far as every call of each turn has an output and nothing drifts; what
    was executed in place is what is reported; nothing is left behind.
    """
    outputs = [data.draw(WORDS) for turn in turns for _ in turn.calls]
    by_call = {}
    every = [each for turn in turns for each in turn.calls]
    for each, output in zip(every, outputs, strict=True):
        by_call.setdefault(each.name + each.arguments, output)
    outputs = [by_call[each.name + each.arguments] for each in every]
    posted = [
        {"name": each.name, "params": dict(each.params), "output": output}
        for each, output in zip(every, outputs, strict=True)
        if data.draw(st.integers(0, 3))
    ]

    async def case() -> None:
        model = scripted(*turns)
        expected = await desk.round_trip(Reference(model, style=style), outputs)
        service = Reference(model, style=style)
        await desk.post(service, *posted)
        response = await desk.ask(service)
        said = desk.turns(response)
        assert said == expected[: len(said)]
        assert not any(service.left().values())
        counted = counts(service)
        assert counted.get("continued", 0) == len(said) - 1
        assert sum(counted.values()) == len(said)
        if style is DRIFTING and turns and any(each.params for each in turns[0].calls):
            assert len(said) == 1
        if style is not DRIFTING:
            assert len(said) > _certain(
                turns, {each["name"] + _text(each["params"]) for each in posted}
            )

    asyncio.run(case())


def _certain(turns: list[Turn], posted: set[str]) -> int:
    """Count the turns from the first that nothing keeps from going on."""
    for index, turn in enumerate(turns):
        # A line break at the start is written as one token with the template's own: it drifts.
        clean = turn.calls and not turn.content.startswith("\n") and "<" not in turn.content
        if not clean or any(each.name + each.arguments not in posted for each in turn.calls):
            return index
    return len(turns)


def _text(params: Any) -> str:
    return json.dumps(params, ensure_ascii=False)
