"""Ids that LangChain draws are those it draws without us."""

import uuid
from itertools import count
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from langchain_spectool import SpeculationMiddleware, SpeculativeToolNode, speculatable
from langchain_spectool.testing import ScriptedModel, calls, text


@speculatable
@tool
def look(n: int) -> str:
    """Look."""
    return str(n)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let every `uuid4` be the next number; return how many were drawn."""
    numbers = count(1)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=next(numbers)))
    return lambda: next(numbers)


def test_nothing_of_ours_draws_a_uuid(counted: Any) -> None:
    """Who replaces `uuid4` to get the same ids again gets them with speculation as well."""

    def agent(*middleware: Any) -> Any:
        script = [calls(("look", {"n": 1})), text("one")]
        return create_agent(ScriptedModel(turns=script), [look], middleware=middleware)

    before = counted()
    agent().invoke({"messages": "look"})
    stock = counted() - before
    before = counted()
    agent(SpeculationMiddleware()).invoke({"messages": "look"})
    assert counted() - before == stock


def test_a_tool_node_draws_none_when_made(counted: Any) -> None:
    """Nor does making a tool node."""
    before = counted()
    SpeculativeToolNode([look])
    assert counted() - before == 1
