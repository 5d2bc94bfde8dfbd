"""The transport goes under a ChatOpenAI's own clients, and leaves them as they are."""

import gc
import warnings
from types import SimpleNamespace
from typing import Any

import httpx
import httpx2
import openai
import pytest
from langchain_openai import ChatOpenAI
from langchain_openai.chat_models import base

from langchain_spectool.engines import ToolCacheClient, ToolCacheTransport
from langchain_spectool.engines.install import Installer, Served
from langchain_spectool.testing import ScriptedModel, text


def _installer(url: str = "http://engine:8000/v1") -> Installer:
    return Installer(ToolCacheClient(url))


def _model(**options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="m", api_key="secret", base_url="http://engine:8000/v1", **options)


def _served(model: Any, installer: Installer | None = None) -> Served:
    found = (installer or _installer()).served(model)
    assert isinstance(found, Served)
    return found


def test_the_copy_is_the_model_in_all_but_its_clients() -> None:
    """Settings, retries and timeouts stay; the model itself is not touched."""
    model = _model(temperature=0.3, max_retries=7, timeout=11.0)
    before = dict(model.__dict__)
    served = _served(model)
    assert model.__dict__ == before
    clients = {"client", "async_client", "root_client", "root_async_client"}
    same = {k: v for k, v in served.model.__dict__.items() if k not in clients}
    assert same == {k: v for k, v in before.items() if k not in clients}
    for root in (served.model.root_client, served.model.root_async_client):
        assert root.max_retries == 7
        assert root.timeout == 11.0
        assert isinstance(root._client._transport, ToolCacheTransport)
    assert served.headers == {"Authorization": "Bearer secret"}


def test_clients_are_wrapped_once_and_copies_follow_the_model() -> None:
    """Making a client takes its time; what is set on the model later is in the next copy."""
    installer, model = _installer(), _model()
    first = _served(model, installer)
    model.temperature = 0.9
    second = _served(model, installer)
    assert second.model.root_client is first.model.root_client
    assert second.model.temperature == 0.9


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_the_users_own_clients_stay_inside(library: Any) -> None:
    """Headers, hooks, mounts and timeouts are theirs."""
    inner = library.MockTransport(lambda _: library.Response(200))
    hook = lambda _: None  # noqa: E731 - compared by identity
    given = library.Client(
        transport=inner,
        mounts={"http://other": inner, "http://none": None},
        headers={"X-Team": "a"},
        event_hooks={"request": [hook]},
        timeout=3.0,
    )
    through = _served(_model(http_client=given)).model.root_client._client
    assert through._transport.inner is inner
    wrapped = [each for each in through._mounts.values() if each is not None]
    assert [type(each) for each in wrapped] == [ToolCacheTransport]
    assert len(through._mounts) == 2
    assert through.headers["X-Team"] == "a"
    assert through.event_hooks["request"] == [hook]
    assert through.timeout == given.timeout
    assert isinstance(through, library.Client)
    assert given._transport is inner
    given.close()


def test_letting_go_of_a_copy_closes_nothing() -> None:
    """The connections are the model's own."""
    model = _model()
    own = model.root_client._client
    served = _served(model, _installer())
    copied = served.model.root_client._client
    copied.close()
    del served, copied
    gc.collect()
    assert not own.is_closed


async def test_closing_a_borrowed_client_leaves_it_open() -> None:
    """The same, awaited."""
    model = _model()
    copied = _served(model).model.root_async_client._client
    await copied.aclose()
    assert not model.root_async_client._client.is_closed


def test_models_that_are_not_served() -> None:
    """Others than ChatOpenAI, and those of another place."""
    installer = _installer("http://engine:9000/v1")
    assert installer.served(ScriptedModel(turns=[text("hi")])) == "not_openai"
    assert installer.served(_model()) == "elsewhere"
    lazy = _model()
    bare = lazy.model_copy(update={"root_client": None, "root_async_client": None})
    assert installer.served(bare) == "elsewhere"


def test_a_model_with_one_kind_of_client() -> None:
    """An awaited key leaves no blocking client; the other one is wrapped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bare = _model().model_copy(update={"root_client": None, "client": None})
    served = _served(bare)
    assert served.model.root_client is None
    assert isinstance(served.model.root_async_client._client._transport, ToolCacheTransport)


def test_what_a_user_has_put_around_the_sdk_is_asked() -> None:
    """A copy would go past it, so there is none."""
    wrapped, patched = _model(), _model()
    wrapped.client = SimpleNamespace(inner=wrapped.client)
    patched.async_client.create = lambda **_: None
    assert _installer().served(wrapped) == "not_openai"
    assert _installer().served(patched) == "not_openai"


def test_nobody_imports_openai_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has such a model has its module."""
    monkeypatch.delitem(__import__("sys").modules, "langchain_openai.chat_models.base")
    assert _installer().served(_model()) == "not_openai"
    assert base.BaseChatOpenAI
    assert openai.OpenAI


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_client_is_the_users_own_whatever_becomes_of_it(library: Any) -> None:
    """What they set on it later holds at once; when they close it, nothing is sent any more."""
    asked: list[Any] = []

    def answer(request: Any) -> Any:
        asked.append(request)
        return library.Response(200)

    given = library.Client(transport=library.MockTransport(answer))
    through = _served(_model(http_client=given)).model.root_client._client
    given.headers = {"X-Team": "a"}
    given.cookies = {"session": "b"}
    through.get("http://engine:8000")
    assert asked[0].headers["X-Team"] == "a"
    assert asked[0].headers["Cookie"] == "session=b"
    given.close()
    assert through.is_closed
    with pytest.raises(RuntimeError):
        through.get("http://engine:8000")
    assert len(asked) == 1
