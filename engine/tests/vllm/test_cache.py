"""The decision as the plugin takes it: once before anything is rendered, once after."""

import asyncio
import json
from typing import Any

from vllm_spectool._core.counters import TURNS
from vllm_spectool._core.decide import Continuation, ContinuationLimits, TurnEnd
from vllm_spectool._core.entries import EntryLimits, parse_entries
from vllm_spectool._core.params import Call
from vllm_spectool.plugin.cache import PluginCache
from vllm_spectool.plugin.kv_room import KvRoom

OWNER = ("chatcmpl-a", "digest")
CALL = Call(name="find", params={"q": 1}, id="call-1")
END = TurnEnd(owner=OWNER, turn=0, stopped=True, calls=(CALL,))


def cache(output: str = "found", **fields: Any) -> PluginCache:
    """Return a cache that holds one output."""
    made = PluginCache(limits=ContinuationLimits(turns=2, context_tokens=100))
    entry = {"name": "find", "params": {"q": 1}, "output": output, **fields}
    made.begin(OWNER)
    entries = parse_entries(json.dumps([entry]).encode(), EntryLimits())
    assert asyncio.run(made.put(OWNER, entries)) == 1
    return made


def test_looking_takes_nothing() -> None:
    """Rendering comes between looking and taking; either may fail."""
    made = cache(uses=1)
    for _ in range(2):
        hit = made.look(END)
        assert hit is not None
        assert [each.content for each in hit.outputs] == ["found"]
    assert made.settle(hit, [1, 2], [1, 9, 3]) == "template_drift"
    verdict = made.settle(hit, [1, 2], [1, 2, 3, 4])
    assert isinstance(verdict, Continuation)
    assert verdict.token_ids == (3, 4)
    assert made.look(END) is None


def test_what_is_turned_on_later_is_kept_to() -> None:
    """The tokenizer and its special tokens are known only once the engine runs."""
    made = cache(output="x<|im_end|>y")
    made.unable = "the server is starting"
    made.turn_on(ContinuationLimits(turns=5, context_tokens=100), {"<|im_end|>"}, KvRoom(64))
    assert made.unable is None
    assert made.limits.turns == 5
    assert made.look(END) is None
    assert made.tally.of(TURNS, "special_tokens") == 1


def test_what_a_response_has_goes_with_it() -> None:
    """When its request ends, or its entries are deleted."""
    made = cache()
    made.end(OWNER)
    assert made.store.entries == 0
    made = cache()
    assert asyncio.run(made.delete(OWNER)) == 1
    assert made.look(END) is None


def test_the_status_gives_the_reason() -> None:
    """Nothing is on where responses cannot go on."""
    assert PluginCache().status()["on"] == ["o3"]
    status = PluginCache(unable="no parser").status()
    assert (status["on"], status["reason"]) == ([], "no parser")
