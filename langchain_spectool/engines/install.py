"""Puts the transport under a ChatOpenAI's own HTTP clients, on a copy of the model."""

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from cachetools import LRUCache

from langchain_spectool._core.encoding import attempt
from langchain_spectool._core.verdicts import EngineVerdict
from langchain_spectool.engines.client import ToolCacheClient, origin_of
from langchain_spectool.engines.transport import ToolCacheTransport

_MOST_CLIENTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A copy of a model whose requests go through our transport."""

    model: Any
    headers: Mapping[str, str]
    """What its own client shows the engine."""


class Installer:
    """Knows which models an engine serves."""

    def __init__(self, engine: ToolCacheClient) -> None:
        """Install for `engine`."""
        self._engine = engine
        self._lock = threading.Lock()
        self._clients: LRUCache[int, tuple[object, Any]] = LRUCache(_MOST_CLIENTS)

    def served(self, model: object) -> Served | EngineVerdict:
        """Return a copy of `model` that goes through the transport, or why there is none.

        The copy is made anew each time: what was changed on the model since is in it.
        """
        if not _is_openai(model):
            return "not_openai"
        roots = _roots(model)
        known = [root for root in roots.values() if root is not None]
        if not known or any(origin_of(str(root.base_url)) != self._engine.origin for root in known):
            return "elsewhere"
        update: dict[str, Any] = {}
        for (name, root), part in zip(roots.items(), ("client", "async_client"), strict=True):
            if root is not None:
                if not _is_plain(getattr(model, part, None), root):
                    return "not_openai"
                update[name] = self._wrapped(root)
                update[part] = update[name].chat.completions
        served = cast("Any", model).model_copy(update=update)
        return Served(model=served, headers=attempt(_shown, known[0]) or {})

    def _wrapped(self, root: Any) -> Any:  # noqa: ANN401 - an SDK's client
        """Return the SDK's client over the transport; the same one for the same client."""
        with self._lock:
            kept = self._clients.get(id(root))
            if kept is None or kept[0] is not root:
                wrapped = root.with_options(http_client=_through(root._client))  # noqa: SLF001 - it has no other name
                kept = self._clients[id(root)] = root, wrapped
            return kept[1]


def _roots(model: object) -> dict[str, Any]:
    return {name: getattr(model, name, None) for name in ("root_client", "root_async_client")}


def addresses_of(model: object) -> str:
    """Return where the clients of a `ChatOpenAI` send to."""
    urls = [str(root.base_url).rstrip("/") for root in _roots(model).values() if root is not None]
    return " and ".join(dict.fromkeys(urls)) or "no address"


def _is_openai(model: object) -> bool:
    # Whoever has such a model has imported its module; nobody else shall.
    module = sys.modules.get("langchain_openai.chat_models.base")
    kind: object = getattr(module, "BaseChatOpenAI", None)
    return isinstance(kind, type) and isinstance(model, kind)


def _is_plain(resource: object, root: Any) -> bool:  # noqa: ANN401 - an SDK's client
    """Say whether a model asks its SDK, and nothing that somebody has put around it."""
    return resource is root.chat.completions and "create" not in vars(resource)


def _shown(root: Any) -> dict[str, str]:  # noqa: ANN401 - an SDK's client
    return {name: value for name, value in root.auth_headers.items() if isinstance(value, str)}


def _through(client: Any) -> Any:  # noqa: ANN401 - of httpx or httpx2
    """Return an HTTP client that sends through our transport, then through another client's own.

    All else is that client's, whenever it is set: proxies, timeouts, headers, cookies, hooks,
    pools, and whether it is closed.
    """
    kind = cast("type[object]", type(client))
    through = object.__new__(type(kind.__name__, (_Through, kind), {}))
    through.__dict__ = client.__dict__
    return through


class _Through:
    """What is another client's in all but these; it closes nothing when nobody holds it."""

    @property
    def _transport(self) -> ToolCacheTransport:
        return ToolCacheTransport(vars(self)["_transport"])

    @property
    def _mounts(self) -> dict[object, ToolCacheTransport | None]:
        return {
            pattern: None if transport is None else ToolCacheTransport(transport)
            for pattern, transport in vars(self)["_mounts"].items()
        }

    def __del__(self) -> None:
        """Leave the connections to the client they were borrowed from."""

    def close(self) -> None:
        """Leave them, too."""

    async def aclose(self) -> None:
        """Leave them, too."""
