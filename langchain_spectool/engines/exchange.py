"""One request of a model call: answered from what is parked, or sent with what opts it in."""

import asyncio
import json
from typing import Any, cast

from langchain_spectool._core.encoding import attempt
from langchain_spectool.engines.answers import Json, answer_in_response, resolved_in
from langchain_spectool.engines.flows import AsyncFlow, SyncFlow
from langchain_spectool.engines.libraries import AsyncSource, Library, SyncSource
from langchain_spectool.engines.model_call import ModelCall
from langchain_spectool.engines.parked import (
    Answers,
    AsyncParked,
    Parked,
    ParkedBody,
    SyncParked,
    first_event_is_good,
    says_something,
)
from langchain_spectool.engines.seats import Seat
from langchain_spectool.engines.strands import AsyncStrand, AsyncWhole, SyncStrand, SyncWhole

_UNDECIDED_S = 0.1
"""Seconds a model call waits at most to learn whether the engine goes on with its answer."""
_NOT_UNDERSTOOD = frozenset({400, 422})
_OK = 200
_REQUEST_ID = "X-Request-Id"
_ENCODINGS = "Accept-Encoding"
_KEY_HEADERS = ("Authorization", "Api-Key")
_OPTIONS, _KEY = "vllm_xargs", "spectool_key"
_FIELD = "spectool"

Response = Any
"""Of `httpx` or of `httpx2`, as the request is."""


class Exchange:
    """What a transport does about one request; all but the waiting is here."""

    def __init__(self, call: ModelCall, request: Any, content: bytes, library: Library) -> None:  # noqa: ANN401
        """Speak for a `request` whose body is `content`."""
        self._call = call
        self._scope = call.scope
        self._request = request
        self._content = content
        self._library = library
        keys = (request.headers.get(name) for name in _KEY_HEADERS)
        self._target = (str(request.url), *keys)

    # --- what is parked

    def claim(self) -> Parked | None:
        """Take what the request may go on from, if something is parked."""
        return self._scope.claim(self._call, self._content, self._target)

    def resumed(self, parked: Parked) -> Response | None:
        """Return the parked answer, by blocking; None if there is none after all."""
        if parked.decided.within(_UNDECIDED_S) and parked.fits(self._content):
            if isinstance(parked, ParkedBody):
                return self._next_body(parked)
            if isinstance(parked, SyncParked) and _begins(parked.flow):
                return self._continued(parked, self._strand(parked.flow, parked.seat, again=True))
        ended = parked.ended
        parked.close()
        self._not_continued(ended=ended)
        return None

    async def aresumed(self, parked: Parked) -> Response | None:
        """Return the parked answer, awaiting; None if there is none after all."""
        try:
            if await _decided(parked) and parked.fits(self._content):
                if isinstance(parked, ParkedBody):
                    return self._next_body(parked)
                if isinstance(parked, AsyncParked) and await _abegins(parked.flow):
                    strand = self._astrand(parked.flow, parked.seat, again=True)
                    return self._continued(parked, strand)
        except BaseException:  # cancelled: nobody else knows of it any more
            await parked.aclose()
            raise
        ended = parked.ended
        await parked.aclose()
        self._not_continued(ended=ended)
        return None

    def _not_continued(self, *, ended: bool) -> None:
        if not ended:  # with a body that was over, nothing was lost: it is an ordinary answer
            self._scope.say("dropped", detail="the engine did not go on")

    def _continued(
        self, parked: SyncParked | AsyncParked, strand: SyncStrand | AsyncStrand
    ) -> Response:
        self._call.take(parked.seat)
        self._scope.say("continued")
        return self._response(parked.flow.response, strand)

    def _next_body(self, parked: ParkedBody) -> Response:
        answers = parked.answers
        own, report = _plain(answers.rest[0])
        self._call.take(parked.seat)
        self._scope.say("continued")
        self._park_body(parked.seat, own, report, answers.rest[1:], answers.headers)
        content = _text(own)
        headers = _sized(answers.headers, content)
        return self._library.response(_OK, headers=headers, content=content)

    # --- what is sent

    def opted_in(self) -> Any | None:  # noqa: ANN401 - a request of either library
        """Return the request as it asks the engine to go on; None if it is to go as it is."""
        if self._scope.client.resting or self._scope.over:
            return None
        headers = self._request.headers.copy()
        seat, own = self._call.seat, headers.get(_REQUEST_ID)
        if not seat.open or own not in (None, seat.request_id):
            seat = self._call.reseat(own)
        seat.target, self._call.asked = self._target, True
        content = _with_key(self._content, seat.key)
        if content is None:
            return None
        headers[_REQUEST_ID] = seat.request_id
        if headers.get(_ENCODINGS) == self._library.accepts:  # what is compressed is not read on
            headers[_ENCODINGS] = "identity"
        headers["Content-Length"] = str(len(content))
        return self._library.request(
            self._request.method,
            self._request.url,
            headers=headers,
            content=content,
            extensions=self._request.extensions,
        )

    def turned_away(self, response: Response) -> bool:
        """Say whether it may be our field that the server did not understand."""
        return response.status_code in _NOT_UNDERSTOOD and not self._scope.client.proven

    def checked(self, response: Response) -> Response:
        """Take the answer to the request without our field: if that is good, the field was it."""
        self._scope.abandon(self._call)
        if response.status_code == _OK:
            self._scope.client.refused()
            self._scope.say("refused", detail="the server takes no `vllm_xargs`")
        return response

    # --- what is answered

    def answered(self, response: Response) -> Response:
        """Return what the SDK is to see of a network response, by blocking."""
        kind = self._kind(response)
        if kind == "text/event-stream":
            flow = SyncFlow(response)
            return self._response(response, self._strand(flow, self._call.seat))
        if kind == "application/json":
            try:
                body = b"".join(response.stream)
            finally:
                response.stream.close()
            return self._whole(response, body, awaited=False)
        return response

    async def aanswered(self, response: Response) -> Response:
        """Return what the SDK is to see of a network response, awaiting."""
        kind = self._kind(response)
        if kind == "text/event-stream":
            flow = AsyncFlow(response)
            return self._response(response, self._astrand(flow, self._call.seat))
        if kind == "application/json":
            try:
                body = b"".join([part async for part in response.stream])
            finally:
                await response.stream.aclose()
            return self._whole(response, body, awaited=True)
        return response

    def _kind(self, response: Response) -> str:
        """Return what a good, plain response is; nothing for any other."""
        if response.status_code != _OK:
            self._scope.abandon(self._call)
            return ""
        if response.headers.get("Content-Encoding", "identity") != "identity":
            self._call.seat.over = True
            return ""
        return str(response.headers.get("Content-Type", "")).partition(";")[0].strip().lower()

    def _whole(self, response: Response, body: bytes, *, awaited: bool) -> Response:
        self._call.seat.over = True
        said: object = attempt(json.loads, body) if _FIELD.encode() in body else None
        if not isinstance(said, dict) or _FIELD not in said:
            return self._response(response, AsyncWhole(body) if awaited else SyncWhole(body))
        own, report = _plain(cast("Json", said))
        fields = cast("Json", report) if isinstance(report, dict) else {}
        following: object = fields.get("continuations")
        rest = cast("list[Json]", following) if isinstance(following, list) else []
        headers = _without_length(response.headers)
        self._park_body(self._call.seat, own, fields, rest, headers)
        content = _text(own)
        headers = _sized(headers, content)
        return self._library.response(_OK, headers=headers, content=content)

    def _park_body(
        self,
        seat: Seat,
        said: Json,
        report: object,
        rest: list[Json],
        headers: Any,  # noqa: ANN401 - of either library
    ) -> None:
        resolved = resolved_in(report)
        plain = all(answer_in_response(each) is not None for each in (said, *rest[:1]))
        if rest and resolved is not None and plain:
            answers = Answers(said=said, resolved=resolved, rest=rest, headers=headers)
            self._park(ParkedBody(seat, self._content, answers))

    def _strand(self, flow: SyncFlow, seat: Seat, *, again: bool = False) -> SyncStrand:
        cut_off = self._library.cut_off if again else None
        return SyncStrand(flow, seat, self._content, self._park, cut_off)

    def _astrand(self, flow: AsyncFlow, seat: Seat, *, again: bool = False) -> AsyncStrand:
        cut_off = self._library.cut_off if again else None
        return AsyncStrand(flow, seat, self._content, self._park, cut_off)

    def _park(self, parked: Parked) -> None:
        try:
            self._scope.park(parked, self._call)
        except Exception:  # noqa: BLE001 - our failure costs the rest, not the answer
            parked.close()

    def _response(self, response: Response, source: SyncSource | AsyncSource) -> Response:
        body = (
            self._library.sync_body(source)
            if isinstance(source, SyncSource)
            else self._library.async_body(source)
        )
        return self._library.response(
            response.status_code,
            headers=response.headers,
            stream=body,
            extensions=response.extensions,
        )


def _begins(flow: SyncFlow) -> bool:
    events: list[bytes] = []
    try:
        while not says_something(events) and (more := flow.read()):
            events += more
    except Exception:  # noqa: BLE001 - then the network is asked again
        return False
    flow.put_back(events)
    return first_event_is_good(events)


async def _abegins(flow: AsyncFlow) -> bool:
    events: list[bytes] = []
    try:
        while not says_something(events) and (more := await flow.read()):
            events += more
    except Exception:  # noqa: BLE001 - then the network is asked again
        return False
    flow.put_back(events)
    return first_event_is_good(events)


async def _decided(parked: Parked) -> bool:
    try:
        async with asyncio.timeout(_UNDECIDED_S):
            await parked.decided.arrival()
    except TimeoutError:
        return False
    return True


def _with_key(content: bytes, key: str) -> bytes | None:
    """Return a JSON body with our field in it; None if it cannot have it.

    Most bodies have no options of that name: those get theirs in front, and are not parsed.
    """
    if _OPTIONS.encode() not in content:
        head, brace, tail = content.partition(b"{")
        if head.strip() or not brace or tail.lstrip()[:1] in {b"", b"}"}:
            return None
        return b"%s{%s,%s" % (head, _text({_OPTIONS: {_KEY: key}})[1:-1], tail)
    body = attempt(json.loads, content)
    if not isinstance(body, dict):
        return None
    fields = cast("Json", body)
    options: object = fields.get(_OPTIONS) or {}
    if not isinstance(options, dict) or _KEY in options:
        return None
    return _text({**fields, _OPTIONS: {**cast("Json", options), _KEY: key}})


def _plain(response: Json) -> tuple[Json, object]:
    """Return a whole response without our field, and the field."""
    rest = dict(response)
    return rest, rest.pop(_FIELD, None)


def _text(value: Json) -> bytes:
    # In ASCII: what JSON can escape, half a pair of surrogates for one, UTF-8 may not hold.
    return json.dumps(value, separators=(",", ":")).encode()


def _without_length(headers: Any) -> Any:  # noqa: ANN401 - of either library
    return _cut(headers.copy(), "Content-Length", "Transfer-Encoding")


def _cut(headers: Any, *names: str) -> Any:  # noqa: ANN401
    for name in names:
        if name in headers:
            del headers[name]
    return headers


def _sized(headers: Any, content: bytes) -> Any:  # noqa: ANN401
    sized = headers.copy()
    sized["Content-Length"] = str(len(content))
    return sized
