"""What `spectool doctor` finds in a graph from outside."""

import sys
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, TodoListMiddleware
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from langchain_spectool import EarlyDispatch, Policy, Speculation, SpeculationMiddleware
from langchain_spectool import speculatable as declare
from langchain_spectool.errors import SpectoolError
from langchain_spectool.graph.doctor import Diagnosis, diagnose, load
from langchain_spectool.testing import ScriptedModel, text


@declare
@tool
def look(query: str) -> str:
    """Look it up."""
    return query


@declare(audience="external")
@tool
def ask(query: str) -> str:
    """Ask somebody else."""
    return query


@tool
def pay(amount: int) -> str:
    """Pay."""
    return str(amount)


def _model() -> ScriptedModel:
    return ScriptedModel(turns=[text("done")])


def _verdicts(diagnosis: Diagnosis) -> dict[str, str]:
    return {each.tool: each.verdict for each in diagnosis.tools}


def _graph(tools: Any, **options: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda _: {})
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    return builder.compile(**options)


def test_agent_with_a_middleware() -> None:
    """An agent's tools, gates and settings are found behind its middleware."""
    ours = SpeculationMiddleware(
        draft=_model(), policy=Policy(allow_external=True, mode="shadow"), gated=["ask"]
    )
    approval = HumanInTheLoopMiddleware(interrupt_on={"look": True})
    agent = create_agent(_model(), [look, ask, pay], middleware=[ours, approval])
    (found,) = diagnose(agent)
    assert _verdicts(found) == {"look": "gated", "ask": "gated", "pay": "undeclared"}
    assert found.notes == [
        (
            "speculation is shadow, guesses come from draft_model, patterns, early_dispatch: "
            "patterns learns as the agent runs, and its first guesses are only scored; "
            "early_dispatch hears the main model only when the caller streams"
        )
    ]


def test_gates_count_without_a_speculation() -> None:
    """Before anything speculates, gates show already, and the remedy is named."""
    approval = HumanInTheLoopMiddleware(interrupt_on={"look": True})
    middleware = [approval, TodoListMiddleware()]
    (found,) = diagnose(create_agent(_model(), [look], middleware=middleware))
    assert _verdicts(found) == {"look": "gated", "write_todos": "not_early"}
    assert "add `SpeculationMiddleware`" in found.notes[0]


def test_policy_of_the_graph_counts() -> None:
    """What the agent's own policy allows is what is said about its tools."""
    ours = SpeculationMiddleware(policy=Policy(allow_external=True))
    (found,) = diagnose(create_agent(_model(), [ask], middleware=[ours]))
    assert _verdicts(found) == {"ask": "run"}
    assert "first guesses are only scored; early_dispatch hears" in found.notes[0]


def test_graph_built_by_hand() -> None:
    """A tool node of a hand-built graph leads to its Speculation; interrupts are pointed out."""
    spec = Speculation([look, pay], speculators=[EarlyDispatch()])
    graph = _graph(spec.tool_node(), interrupt_before=["tools"])
    (found,) = diagnose(graph)
    assert _verdicts(found) == {"look": "run", "pay": "undeclared"}
    assert "`interrupt_before=['tools']` cannot be seen" in found.notes[1]


def test_tool_node_inside_a_function() -> None:
    """A tool node that a node function calls is found where the function closes over it."""
    node = ToolNode([look])
    (found,) = diagnose(_graph(lambda state: {"messages": node.invoke(state)}))
    assert _verdicts(found) == {"look": "run"}


def test_graphs_inside_a_graph() -> None:
    """Each agent inside a graph gets a diagnosis of its own, by its node's name."""
    inner = create_agent(_model(), [look], middleware=[SpeculationMiddleware()])
    builder = StateGraph(MessagesState)
    builder.add_node("helper", inner)
    builder.add_edge(START, "helper")
    outer, helper = diagnose(builder.compile(name="outer"))
    assert str(outer) == "outer\n  note: no tools are in it"
    assert (helper.name, _verdicts(helper)) == ("helper", {"look": "run"})


@pytest.mark.parametrize(
    "subject",
    [Speculation([look]), ToolNode([look]), Speculation([look]).tool_node(), [look]],
    ids=["speculation", "tool_node", "speculative_tool_node", "list"],
)
def test_parts_of_a_graph(subject: object) -> None:
    """A Speculation, a tool node and a list of tools are looked at as they are."""
    (found,) = diagnose(subject)
    assert _verdicts(found) == {"look": "run"}


@pytest.mark.parametrize("subject", [None, 3, ["look"], SpeculationMiddleware()])
def test_what_has_no_tools(subject: object) -> None:
    """Anything else is refused by what it is, with what would do."""
    with pytest.raises(SpectoolError, match=f"a {type(subject).__name__} has no tools"):
        diagnose(subject)


class TestLoad:
    """How a target on the command line becomes an object."""

    @pytest.fixture(autouse=True)
    def _path(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Work in a folder with one module, and leave the module path as it was."""
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.chdir(tmp_path)
        (tmp_path / "doctors_target.py").write_text(
            "found = ['the graph']\n"
            "def plain(): return found\n"
            "def with_config(config): return found if config == {} else None\n"
            "def with_default(size=3): return found if size == 3 else None\n"
            "async def later(): return found\n"
            "def broken(): raise RuntimeError('no key')\n"
        )

    @pytest.mark.parametrize(
        "where", ["doctors_target", "doctors_target.py", "./doctors_target.py"]
    )
    @pytest.mark.parametrize("name", ["found", "plain", "with_config", "with_default", "later"])
    def test_modules_files_and_factories(self, where: str, name: str) -> None:
        """Modules and files are imported from here; factories, also async ones, are called."""
        assert load(f"{where}:{name}") == ["the graph"]

    @pytest.mark.parametrize(
        ("target", "reason"),
        [
            ("doctors_target", "`module:graph`"),
            (":found", "`module:graph`"),
            ("doctors_target:", "`module:graph`"),
            ("doctors_target:nothing", "AttributeError"),
            ("no_such_module_here:found", "ModuleNotFoundError"),
            ("no_such_file_here.py:found", "FileNotFoundError"),
            ("doctors_target:broken", "RuntimeError: no key"),
        ],
    )
    def test_what_cannot_be_loaded(self, target: str, reason: str) -> None:
        """The error names the target and the cause."""
        with pytest.raises(SpectoolError, match=reason) as error:
            load(target)
        assert repr(target) in str(error.value)
