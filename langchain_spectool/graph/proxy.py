"""A stand-in for a tool: stock code runs it as the tool itself, its body asks us first."""

import contextlib
import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, cast, get_type_hints

from langchain_core.tools import BaseTool

from langchain_spectool._core.keys import prepared

_BODY = "_spectool_body"


class ProxyBody(Protocol):
    """Stands where the tool's own body stood; `values` are those the model chose, `handed` all."""

    def run(
        self, body: Callable[[], Any], values: Mapping[str, Any], handed: Mapping[str, Any]
    ) -> Any:  # noqa: ANN401 - the tool's value
        """Answer a blocking call; `body()` runs the real body on the same values."""
        ...

    async def arun(
        self,
        body: Callable[[], Coroutine[Any, Any, Any]],
        values: Mapping[str, Any],
        handed: Mapping[str, Any],
    ) -> Any:  # noqa: ANN401 - the tool's value
        """Answer an awaited call."""
        ...


def proxy(tool: BaseTool, body: ProxyBody, *, callbacks: bool = True) -> BaseTool:
    """Return a stand-in for `tool` with the same name, schema, format, handlers and tags.

    The real body, when it runs, runs on `tool` itself, so that what it writes to its own fields
    stays. With `callbacks=False` the tool's own callbacks stay silent.
    """
    silent = None if callbacks else {"callbacks": None, "verbose": False}
    stand_in = tool.model_copy(update=silent)
    object.__setattr__(stand_in, "__class__", _proxy_class(type(tool)))
    object.__setattr__(stand_in, _BODY, (body, tool))
    return stand_in


_PROXY = "_spectool_proxy"


def _proxy_class(base: type[BaseTool]) -> type[BaseTool]:
    # Making a pydantic subclass takes 0.9 ms, so each tool class gets one, once, and holds it:
    # a class that is made anew for every run then goes with its stand-in.
    made: type[BaseTool] | None = vars(base).get(_PROXY)
    if made is None:
        namespace: dict[str, Any] = {"_run": _sync_body(base), "__module__": base.__module__}
        if _own(base, "_arun") is not _own(BaseTool, "_arun"):  # core asks the same question
            namespace["_arun"] = _async_body(base)
        made = type(base.__name__, (base,), namespace)
        setattr(base, _PROXY, made)
    return made


def _sync_body(base: type[BaseTool]) -> Callable[..., Any]:
    @_showing(_own(base, "_run"))
    def _run(self: BaseTool, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the tool's own
        body, tool = cast("tuple[ProxyBody, BaseTool]", getattr(self, _BODY))
        own = functools.partial(_own(tool, "_run"), *args, **kwargs)
        values = _received(tool, args, kwargs)
        return own() if values is None else body.run(own, values, kwargs)

    return _run


def _async_body(base: type[BaseTool]) -> Callable[..., Any]:
    @_showing(_own(base, "_arun"))
    async def _arun(self: BaseTool, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the tool's own
        body, tool = cast("tuple[ProxyBody, BaseTool]", getattr(self, _BODY))
        own = functools.partial(_own(tool, "_arun"), *args, **kwargs)
        values = _received(tool, args, kwargs)
        return await (own() if values is None else body.arun(own, values, kwargs))

    return _arun


def _received(
    tool: BaseTool, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return the values the model chose; None, and the body runs as ever, if that fails."""
    try:
        return prepared(tool).received(args, kwargs)
    except Exception:  # noqa: BLE001 - our failure is a miss
        return None


def _showing(body: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a stand-in the signature of `body`: core finds `run_manager` and `config` by it.

    Core resolves hints that are text anew at every call. Ours are resolved once, and the time
    that saves pays for the claim.
    """

    def show(stand_in: Callable[..., Any]) -> Callable[..., Any]:
        shown = functools.wraps(body)(stand_in)
        with contextlib.suppress(Exception):  # a name that does not resolve is core's to report
            shown.__annotations__ = get_type_hints(body, include_extras=True)
        return shown

    return show


def _own(tool: BaseTool | type[BaseTool], name: str) -> Callable[..., Any]:
    return getattr(tool, name)
