"""What the transport sends: the caller's request, with what opts it in."""

import httpx
import pytest

from langchain_spectool.engines import Entry, ToolCacheTransport
from langchain_spectool.engines.model_call import CURRENT
from tests.engines.stage import LIBRARIES, Stage, look, untouched
from tests.engines.wire import ASKED, BOTH, JSON, URL, Json, Network, Play, calling, saying


async def test_the_opt_in_is_all_that_is_added() -> None:
    """Key and id are ours; every other byte of the body is the caller's."""
    stage = Stage(Network(Play([saying()])))
    await stage.aask(ASKED, **{"X-Mine": "1"})
    sent, headers = stage.network.bodies[0], stage.network.headers[0]
    key = sent.pop("vllm_xargs")["spectool_key"]
    assert sent == ASKED
    assert len(key) >= 22
    assert headers["x-mine"] == "1"
    assert headers["content-length"] == str(len(stage.network.contents[0]))
    assert headers["x-request-id"]


async def test_the_callers_options_and_id_are_kept() -> None:
    """Ours are merged into theirs; what the engine is told goes under their id."""
    stage = Stage(Network(Play([saying()])))
    call = stage.begin()
    await stage.aask({**ASKED, "vllm_xargs": {"a": 1}}, **{"X-Request-Id": "mine"})
    options = stage.network.bodies[0]["vllm_xargs"]
    assert options.pop("spectool_key")
    assert options == {"a": 1}
    assert stage.network.headers[0]["x-request-id"] == "mine"
    assert call.seat.request_id != "mine"
    assert any(seat.request_id == "mine" for seat in stage.scope._seats)


@pytest.mark.parametrize(
    "body",
    [
        {**ASKED, "vllm_xargs": {"spectool_key": "theirs"}},
        {**ASKED, "vllm_xargs": "odd"},
        {},
    ],
)
async def test_requests_that_cannot_have_it_go_as_they_are(body: Json) -> None:
    """A caller's own key, or a body that is none."""
    stage = Stage(Network(Play([BOTH])))
    assert await stage.aask(body) == BOTH
    assert stage.network.bodies == [body]


async def test_requests_of_nobody_go_as_they_are() -> None:
    """Without a model call of a Speculation nothing is touched."""
    network = Network(Play([BOTH]))
    async with httpx.AsyncClient(transport=ToolCacheTransport(network)) as client:
        response = await client.post(URL, json=ASKED)
    assert response.content == BOTH
    assert network.bodies == [ASKED]
    assert "x-request-id" not in network.headers[0]


async def test_a_retry_goes_under_the_same_name_unless_that_is_over() -> None:
    """The engine counts requests of one name; it forgets them with the last."""
    error = Play([b"{}"], status=500, headers=JSON)
    stage = Stage(Network(error, Play([BOTH]), Play([saying()])))
    await stage.aask(ASKED)
    assert await stage.aask(ASKED) == calling()
    ids = [headers["x-request-id"] for headers in stage.network.headers]
    assert len(set(ids)) == 2


@LIBRARIES
async def test_answers_are_asked_for_uncompressed(library: str) -> None:
    """What a gateway compresses could not be read on; the request that goes untouched may be."""
    stage = Stage(Network(Play([saying()])), library=library)
    await stage.aask(ASKED)
    assert stage.network.headers[0]["accept-encoding"] == "identity"
    await stage.scope.aend()
    await untouched(stage)
    assert "gzip" in stage.network.headers[1]["accept-encoding"]


async def test_a_callers_own_encodings_are_kept() -> None:
    """Whoever asks for one has a reason."""
    stage = Stage(Network(Play([saying()])))
    await stage.aask(ASKED, **{"Accept-Encoding": "gzip"})
    assert stage.network.headers[0]["accept-encoding"] == "gzip"


@pytest.mark.parametrize("status", [400, 500, 503])
async def test_what_was_told_for_a_request_that_failed_is_forgotten(status: int) -> None:
    """Maybe a gateway refused it, so the engine would wait for it; the retry is told again."""
    error = Play([b"{}"], status=status, headers=JSON)
    stage = Stage(Network(error, Play([saying()])))
    call = stage.begin()
    call.post(Entry(name="weather", params={}, output="18C"))
    await look()
    token = CURRENT.set(call)
    async with stage.module.AsyncClient(transport=ToolCacheTransport(stage.network)) as client:
        for _ in range(2):
            await client.post(URL, json=ASKED)
            await look()
    CURRENT.reset(token)
    await stage.scope.aend()
    told = [(method, path.rpartition("/")[2]) for method, path, _ in stage.posts.told]
    first, second = (f"chatcmpl-{h['x-request-id']}" for h in stage.network.headers)
    assert told == [("POST", first), ("DELETE", first), ("POST", second)]
