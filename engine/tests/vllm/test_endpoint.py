"""Whatever stands in the plugin's way, the server starts without it."""

import asyncio
import logging
import subprocess
import sys
from argparse import Namespace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from vllm_spectool.plugin.endpoint import ToolCacheEndpoint


def vllm(release: str) -> ModuleType:
    """Return a stand-in for the package."""
    made = ModuleType("vllm")
    made.__version__ = release  # pyright: ignore[reportAttributeAccessIssue]
    made.envs = SimpleNamespace(VLLM_API_KEY=None)  # pyright: ignore[reportAttributeAccessIssue]
    return made


def start(plugin: ToolCacheEndpoint, state: Any = None) -> SimpleNamespace:
    """Do to the plugin what vLLM's API server does; return the app."""
    args = Namespace(api_key=None)
    app = SimpleNamespace(state=SimpleNamespace(args=args), router=SimpleNamespace(routes=[]))
    plugin.attach_router(app)
    asyncio.run(plugin.init_state(SimpleNamespace(), state or SimpleNamespace(), args))
    return app


def test_another_release_turns_it_off_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The routes stay, to say so; the chat handler is vLLM's own."""
    monkeypatch.setitem(sys.modules, "vllm", vllm("0.33.0"))
    plugin, state = ToolCacheEndpoint(), SimpleNamespace(openai_serving_chat="stock")
    with caplog.at_level(logging.INFO, logger="vllm.spectool"):
        app = start(plugin, state)
    assert len(app.router.routes) == 5
    assert state.openai_serving_chat == "stock"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "0.33.0" in caplog.text
    assert "0.33.0" in plugin.cache.status()["reason"]


def test_a_vllm_that_is_built_otherwise_turns_it_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A module that moved is a reason, no crash."""
    monkeypatch.setitem(sys.modules, "vllm", vllm("0.32.9"))
    plugin = ToolCacheEndpoint()
    start(plugin)
    assert len(caplog.records) == 1
    assert plugin.cache.unable is not None
    assert "built otherwise" in plugin.cache.unable


def test_the_off_switch_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No route, so that clients see a server without the plugin; no line either."""
    monkeypatch.setenv("VLLM_SPECTOOL", "0")
    assert start(ToolCacheEndpoint()).router.routes == []
    assert not caplog.records


def test_until_it_is_installed_nothing_can_be_posted() -> None:
    """Routes exist before the engine does."""
    assert ToolCacheEndpoint().cache.unable == "the server is starting"


def test_importing_it_loads_neither_vllm_nor_langchain() -> None:
    """VLLM imports the plugin first; LangChain would cost every start seconds."""
    code = (
        "import sys; import vllm_spectool.plugin.endpoint, vllm_spectool.cli;"
        "print(sorted({name.split('.')[0] for name in sys.modules}"
        " & {'vllm', 'torch', 'langchain', 'langchain_core', 'langgraph', 'langchain_spectool'}))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (told.stdout, told.stderr) == ("[]\n", "")
