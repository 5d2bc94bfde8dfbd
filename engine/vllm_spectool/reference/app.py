"""The reference engine over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.responses import Response as HttpResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from vllm_spectool.errors import RejectedError
from vllm_spectool.reference.response import ModelError, Response
from vllm_spectool.reference.service import Reference
from vllm_spectool.reference.wire import error_body
from vllm_spectool.web import is_authorized, routes


def build_app(service: Reference) -> Starlette:
    """Return the ASGI app of a service."""
    settings = service.settings
    made: list[BaseRoute] = [
        Route("/v1/chat/completions", _chat(service), methods=["POST"]),
        Route("/v1/models", _models(service), methods=["GET"]),
        Route("/health", _health, methods=["GET"]),
        Route("/metrics", _metrics(service), methods=["GET"]),
    ]
    if settings.continuations:
        made += routes(service, limits=settings.entry_limits, api_keys=settings.api_keys)
    return Starlette(routes=made, middleware=[Middleware(_Guard, service=service)])


class _Guard:
    """Asks for a key below `/v1`, as vLLM does."""

    def __init__(self, app: ASGIApp, service: Reference) -> None:
        self._app = app
        self._api_keys = service.settings.api_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v1"):
            authorization = Request(scope).headers.get("Authorization")
            if not is_authorized(authorization, self._api_keys):
                refusal = JSONResponse({"error": "Unauthorized"}, status_code=401)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _Stream(StreamingResponse):
    """Frees what the response has when the client goes, even before the first byte."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.events(), media_type="text/event-stream")
        self._response = response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._response.close()


def _chat(service: Reference) -> Callable[[Request], Awaitable[HttpResponse]]:
    async def chat(request: Request) -> HttpResponse:
        try:
            response = service.chat(await request.body(), dict(request.headers))
        except RejectedError as error:
            return JSONResponse(error.body, status_code=error.status)
        except ClientDisconnect:  # in the middle of its request: nobody reads this
            return HttpResponse(status_code=499)
        if response.request.stream:
            return _Stream(response)
        try:
            return JSONResponse(await _unless_gone(request, response))
        except ModelError as error:
            body = error_body(str(error), kind="InternalServerError", code=500)
            return JSONResponse(body, status_code=500)
        finally:
            response.close()

    return chat


async def _unless_gone(request: Request, response: Response) -> dict[str, Any]:
    """Return the whole response; where the client goes first, an empty one that nobody reads."""
    work = asyncio.create_task(response.whole(), name="whole response")  # noqa: TID251 - ends below
    watch = asyncio.create_task(_gone(request), name="disconnect")  # noqa: TID251 - ends below
    try:
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        return work.result() if work.done() else {}
    finally:
        work.cancel()
        watch.cancel()
        await asyncio.wait({work, watch})


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _models(service: Reference) -> Callable[[Request], Awaitable[HttpResponse]]:
    async def models(_: Request) -> HttpResponse:
        card = {
            "id": service.settings.model_name,
            "object": "model",
            "created": 0,
            "owned_by": "vllm-spectool",
            "max_model_len": service.engine.limits.context_tokens,
        }
        return JSONResponse({"object": "list", "data": [card]})

    return models


async def _health(_: Request) -> HttpResponse:
    return HttpResponse(status_code=200)


def _metrics(service: Reference) -> Callable[[Request], Awaitable[HttpResponse]]:
    async def metrics(_: Request) -> HttpResponse:
        return PlainTextResponse(service.metrics(), media_type="text/plain; version=0.0.4")

    return metrics
