"""What the package exports, and what importing it costs."""

import subprocess
import sys
from importlib import import_module

import pytest

import langchain_spectool


def test_all_is_sorted_and_true() -> None:
    """`__all__` is sorted, and every name in it is a public object of this package."""
    names = langchain_spectool.__all__
    assert names == sorted(names)
    assert len(set(names)) == len(names)
    for name in names:
        exported = getattr(langchain_spectool, name)
        assert exported.__name__ == name
        home = import_module(exported.__module__)
        assert home.__name__.startswith("langchain_spectool.")
        assert getattr(home, name) is exported


def test_nothing_else_is_exported() -> None:
    """What `dir` shows beside `__all__` is a submodule or private."""
    others = set(dir(langchain_spectool)) - set(langchain_spectool.__all__)
    public = {name for name in others if not name.startswith("_")}
    modules = {name.removeprefix("langchain_spectool.") for name in sys.modules}
    assert public <= modules | {"TYPE_CHECKING", "import_module"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A misspelt name says which module lacks it."""
    with pytest.raises(AttributeError, match="'langchain_spectool' has no attribute 'Specul'"):
        _ = langchain_spectool.Specul


@pytest.mark.parametrize(
    "statement",
    [
        "import langchain_spectool",
        "from langchain_spectool import DraftModel, Speculation, SpeculativeToolNode, speculatable",
    ],
)
def test_importing_leaves_the_agents_alone(statement: str) -> None:
    """Nobody pays for `langchain.agents` who does not ask for a middleware."""
    look = f"{statement}; import sys; print('langchain.agents' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.strip() == "False"


def test_importing_the_package_loads_no_framework() -> None:
    """The bare import loads neither LangChain nor LangGraph."""
    look = "import langchain_spectool, sys; print([m for m in sys.modules if m[:4] == 'lang'])"
    ran = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.strip() == "['langchain_spectool']"
