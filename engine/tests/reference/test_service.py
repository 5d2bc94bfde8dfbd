"""The reference engine, in one event loop."""

import asyncio
from typing import Any

import pytest

from vllm_spectool._core.decide import ContinuationLimits
from vllm_spectool.reference import (
    CHATML,
    LLAMA,
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
        assert desk.counts(service) == {"no_entry": 1}

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


def test_a_step_that_raises_ends_all_requests(
    desk: Any, nothing_left: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client is told, whether its request runs or waits; the next are served."""

    def broken() -> None:
        monkeypatch.undo()
        msg = "planted"
        raise RuntimeError(msg)

    async def case() -> None:
        service = Reference(LOOKING)
        monkeypatch.setattr(service.engine, "_admit", broken)
        whole = desk.begin(service, "1").whole()
        events = [each async for each in desk.begin(service, "2").events()]
        assert "planted" in events[-2]
        with pytest.raises(ModelError, match="planted"):
            await whole
        assert service.left() == nothing_left
        assert len(desk.turns(await desk.ask(service, "3"))) == 1

    asyncio.run(case())


def test_a_failure_at_the_end_of_a_turn_is_its_requests_own(
    desk: Any, nothing_left: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever raises there, others go on."""

    async def case() -> None:
        service = Reference(LOOKING)
        read = service.engine._calls

        def planted(running: Any, parsed: Any) -> Any:
            if running.request.id == "chatcmpl-1":
                raise KeyError("planted")
            return read(running, parsed)

        monkeypatch.setattr(service.engine, "_calls", planted)
        await desk.post(service, LOOK, request_id="2")
        asked = desk.ask(service, "1"), desk.ask(service, "2")
        bad, good = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(bad, ModelError)
        assert len(desk.turns(good)) == 2
        assert service.left() == nothing_left

    asyncio.run(case())


def test_a_failure_after_the_first_turn_leaves_the_turns_before(
    desk: Any, nothing_left: Any
) -> None:
    """The client makes the calls itself, and learns of the failure from its own request."""

    def model(prompt: Prompt) -> Turn:
        if prompt.outputs:
            raise RuntimeError("no")
        return call("look", x=1)

    async def case() -> None:
        service = Reference(model)
        plain = await desk.ask(service, opted_in=False)
        await desk.post(service, LOOK)
        said = await desk.ask(service)
        assert desk.turns(said) == desk.turns(plain)
        assert "spectool" not in said
        with pytest.raises(ModelError):
            await desk.round_trip(service, ["seen"])
        assert service.left() == nothing_left

    asyncio.run(case())
