"""The tools of recordings: bound, keyed, marked, and never run."""

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.messages.tool import tool_call
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_spectool._core.contracts import declared
from langchain_spectool._core.keys import call_key
from langchain_spectool.errors import SpectoolError
from langchain_spectool.traces.tools import Kits, kit_of
from langchain_spectool.traces.trajectory import Conversation, UnreadableError

PARAMETERS = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
LOOK: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look", "description": "Look.", "parameters": PARAMETERS},
    "x_read_only": True,
}
PAY: dict[str, Any] = {"type": "function", "function": {"name": "pay"}, "x_read_only": False}


def _conversation(**given: Any) -> Conversation:
    call = tool_call(name="look", args={}, id="c")
    messages = (AIMessage("", tool_calls=[call]),)
    return Conversation(messages=messages, run="r", task="t", **{"dataset": "d", **given})


def _kits(warnings: list[str], given: Path | None = None) -> Kits:
    return Kits(given, warnings.append)


def test_tools_can_be_bound_and_keyed() -> None:
    """A recorded tool shows a model its schema, and its calls compare by value and type."""
    look, _ = kit_of([LOOK, PAY]).tools
    shown = convert_to_openai_tool(look)["function"]
    assert (shown["name"], shown["parameters"]) == ("look", PARAMETERS)
    assert call_key(look, {"id": "1"}) == call_key(look, {"id": "1"}) is not None
    assert call_key(look, {"id": "1"}) != call_key(look, {"id": 1})


def test_only_tools_that_read_are_declared() -> None:
    """`x_read_only` is what makes a tool one that may run early."""
    kit = kit_of([LOOK, PAY])
    assert kit.read_only == {"look"}
    assert [declared(tool) is not None for tool in kit.tools] == [True, False]


@pytest.mark.parametrize("mark", [None, "yes", 0, [True], {}], ids=str)
def test_only_true_marks_a_tool(mark: object) -> None:
    """Whatever else stands there is no word that the tool only reads."""
    assert kit_of([{**LOOK, "x_read_only": mark}]).read_only == frozenset()


def test_the_mark_may_stand_inside_the_function() -> None:
    """Some lists have no place outside it."""
    assert kit_of([{"name": "f", "x_read_only": True}]).read_only == {"f"}
    assert kit_of([{"function": {"name": "f", "x_read_only": True}}]).read_only == {"f"}


async def test_tools_never_run() -> None:
    """Called either way, a recorded tool says what it is."""
    (look,) = kit_of([LOOK]).tools
    with pytest.raises(SpectoolError, match="recorded run cannot run"):
        look.invoke({"id": "1"})
    with pytest.raises(SpectoolError, match="recorded run cannot run"):
        await look.ainvoke({"id": "1"})


@pytest.mark.parametrize(
    ("listed", "reason"),
    [
        ([7], "tool 1 is a JSON object, got int"),
        ([{}], "a tool has a name, got None"),
        ([LOOK, LOOK], "two tools are called 'look'"),
        ([{"name": "f", "parameters": [1]}], "`parameters` of the tool 'f'"),
        ([{"name": "f", "parameters": {"properties": 7}}], "`parameters` of the tool 'f'"),
    ],
    ids=str,
)
def test_a_list_that_is_none_has_a_reason(listed: list[object], reason: str) -> None:
    """Each kind of damage in a list of tools is named."""
    with pytest.raises(UnreadableError, match=reason):
        kit_of(listed)


def test_a_given_file_stands_before_all_others(tmp_path: Path) -> None:
    """`--tools` counts for every recording, whatever these list themselves."""
    file = tmp_path / "mine.json"
    file.write_text(json.dumps([PAY]))
    kit = _kits([], file).kit(_conversation(tools=[LOOK]), tmp_path)
    assert [tool.name for tool in kit.tools] == ["pay"]


@pytest.mark.parametrize("text", [None, "{", "{}", "[7]", "[" * 100_000], ids=lambda t: str(t)[:4])
def test_a_given_file_must_be_sound(tmp_path: Path, text: str | None) -> None:
    """What is named by hand and cannot be used is an error that names it."""
    file = tmp_path / "mine.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SpectoolError, match=r"tools file '.*mine.json' cannot be used"):
        _kits([], file)


def test_tools_beside_the_traces_are_found_once(tmp_path: Path) -> None:
    """`tools_ref` names a file in `tools/`, and equal references give the same objects."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "shop.v1.json").write_text(json.dumps([LOOK]))
    warnings: list[str] = []
    kits = _kits(warnings)
    first, second = (kits.kit(_conversation(tools_ref="shop.v1"), tmp_path) for _ in range(2))
    assert first.read_only == {"look"}
    assert first is second
    assert warnings == []


@pytest.mark.parametrize(
    "name",
    ["../secret", "..", "a/b", "/etc/passwd", "a\\b", ".hidden", "", "a\n", "\x1b[2J", 7, []],
)
def test_a_reference_never_leaves_its_folder(tmp_path: Path, name: object) -> None:
    """What is no bare file name is refused, named in printable signs, and not opened."""
    for place in (tmp_path / "secret.json", tmp_path / "tools" / ".hidden.json"):
        place.parent.mkdir(exist_ok=True)
        place.write_text(json.dumps([LOOK]))
    warnings: list[str] = []
    kits = _kits(warnings)
    for _ in range(2):
        assert kits.kit(_conversation(tools_ref=name), tmp_path).read_only == frozenset()
    assert len([text for text in warnings if "tools_ref" in text]) == 1
    assert all(text.isprintable() for text in warnings)


@pytest.mark.parametrize("text", [None, "{", '[{"name": "\\u001b["}, {"name": "\\u001b["}]'])
def test_tools_that_are_missing_or_damaged_are_named_once(tmp_path: Path, text: str | None) -> None:
    """The recording is still read, its tools are those it calls, and one warning says why."""
    if text is not None:
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "shop.json").write_text(text)
    warnings: list[str] = []
    kits = _kits(warnings)
    for _ in range(2):
        kit = kits.kit(_conversation(tools_ref="shop"), tmp_path)
    assert [tool.name for tool in kit.tools] == ["look"]
    assert [text.partition(":")[0] for text in warnings] == [
        "tools/shop.json cannot be used",
        "no tools are listed for 'd'",
    ]
    assert all(text.isprintable() for text in warnings)


def test_tools_that_nobody_lists_are_those_called(tmp_path: Path) -> None:
    """Their schemas are unknown, none is read-only, and each name is one object from then on."""
    warnings: list[str] = []
    kits = _kits(warnings)
    first = kits.kit(_conversation(), tmp_path)
    more = AIMessage("", tool_calls=[tool_call(name="pay", args={"n": 1}, id="c")])
    second = kits.kit(Conversation(messages=(more,), run="r2", task="t2", dataset="d"), tmp_path)
    assert [tool.name for tool in second.tools] == ["look", "pay"]
    assert second.tools[0] is first.tools[0]
    assert second.read_only == frozenset()
    assert (first.is_listed, second.is_listed) == (False, False)
    assert len(warnings) == 1
    assert "left out are their schemas and which of them only read" in warnings[0]
    assert "all else is used" in warnings[0]
    assert "--tools" in warnings[0]
    assert call_key(second.tools[1], {"n": 1}) != call_key(second.tools[1], {"n": 2})


def test_tools_in_the_recording_count(tmp_path: Path) -> None:
    """A record that lists its own tools needs no file."""
    warnings: list[str] = []
    kits = _kits(warnings)
    kit = kits.kit(_conversation(tools=[LOOK]), tmp_path)
    assert kit.read_only == {"look"}
    assert kits.kit(_conversation(tools=[LOOK]), tmp_path) is kit
    assert warnings == []
