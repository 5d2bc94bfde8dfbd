"""BFCL multi-turn: 200 conversations over eight small systems, from the `bfcl-eval` package.

Its tools execute, its ground truth lists the calls of each user turn.
"""

import ast
import copy
import inspect
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from langchain_spectool.bench.gold import (
    Call,
    DataSet,
    GoldTask,
    GoldTool,
    batched,
    package,
    split,
    tool_of,
)

NAME = "bfcl_multi_turn"
PACKAGE = "bfcl-eval"
_FILE = "BFCL_v4_multi_turn_base.json"

READ_ONLY: Mapping[str, Mapping[str, Sequence[str]]] = {
    "GorillaFileSystem": {
        "looks at the tree": ("pwd", "ls", "find", "du"),
        "looks into files; `sort` shows a sorted copy": (
            "cat",
            "wc",
            "sort",
            "grep",
            "tail",
            "diff",
        ),
    },
    "MathAPI": {
        "a function of its arguments": (
            "mean",
            "standard_deviation",
            "si_unit_conversion",
            "imperial_si_conversion",
            "add",
            "subtract",
            "multiply",
            "divide",
            "power",
            "absolute_value",
            "round_number",
            "percentage",
            "min_value",
            "max_value",
            "sum_values",
        ),
    },
    "MessageAPI": {
        "looks up users": ("list_users", "get_user_id", "message_get_login_status"),
        "looks through messages": ("view_messages_sent", "search_messages", "get_message_stats"),
    },
    "TwitterAPI": {
        "looks up users": ("posting_get_login_status", "list_all_following", "get_user_stats"),
        "looks through posts": (
            "get_tweet",
            "get_user_tweets",
            "search_tweets",
            "get_tweet_comments",
        ),
    },
    "TicketAPI": {
        "looks up tickets": ("get_ticket", "get_user_tickets", "ticket_get_login_status"),
    },
    "TradingBot": {
        "looks up the market": (
            "get_current_time",
            "get_symbol_by_name",
            "get_stock_info",
            "get_available_stocks",
            "filter_stocks_by_price",
            "notify_price_change",
        ),
        "looks up the account": (
            "get_order_details",
            "get_account_info",
            "trading_get_login_status",
            "get_watchlist",
            "get_order_history",
            "get_transaction_history",
        ),
    },
    "TravelAPI": {
        "looks up the account": (
            "travel_get_login_status",
            "get_credit_card_balance",
            "retrieve_invoice",
            "get_booking_history",
            "get_all_credit_cards",
        ),
        "a table, or a function of its arguments": (
            "get_budget_fiscal_year",
            "list_all_airports",
            "compute_exchange_rate",
            "verify_traveler_information",
            "get_nearest_airport_by_city",
        ),
    },
    "VehicleControlAPI": {
        "looks at the car": (
            "displayCarStatus",
            "check_tire_pressure",
            "estimate_drive_feasibility_by_mileage",
        ),
        "a table, or a function of its arguments": (
            "get_outside_temperature_from_weather_com",
            "display_log",
            "liter_to_gallon",
            "gallon_to_liter",
            "estimate_distance",
            "get_zipcode_based_on_city",
            "find_nearest_tire_shop",
        ),
    },
}
"""The methods that change nothing, by class and reason; every other method may.

Some only look harmless: `cd` moves, `echo` can write a file, `logarithm` and `square_root` set the
precision of the whole process, `get_flight_cost` writes into the list of prices, the random
`get_current_speed` and `get_outside_temperature_from_google` move their generator on, and
`contact_customer_support` tells somebody.
"""


def load(*, seed: int, train_share: float) -> DataSet:
    """Return the data set.

    Raises:
        MissingPackages: `bfcl-eval` is not installed.
    """
    folder = Path(package("bfcl_eval").__path__[0]) / "data"
    answers = {row["id"]: row for row in _rows(folder / "possible_answer" / _FILE)}
    tasks = [_task(row, answers[row["id"]]) for row in _rows(folder / _FILE)]
    train, test = split(tasks, seed=seed, share=train_share)
    return DataSet(
        name=NAME,
        package=PACKAGE,
        about="BFCL v4 multi-turn base, ground truth",
        train=train,
        test=test,
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def _task(row: Mapping[str, Any], answer: Mapping[str, Any]) -> GoldTask:
    def environment() -> dict[str, GoldTool]:
        return _environment(row["involved_classes"], row["initial_config"])

    tools = environment()
    questions = [
        ("\n".join(said["content"] for said in turn), [_call(source, tools) for source in calls])
        for turn, calls in zip(row["question"], answer["ground_truth"], strict=True)
    ]
    return GoldTask(
        task_id=row["id"],
        questions=batched(questions, environment),
        environment=environment,
    )


def _call(source: str, tools: Mapping[str, GoldTool]) -> Call:
    """Read a call that is written as Python, such as `sort('report.txt')`."""
    node = ast.parse(source, mode="eval").body
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        msg = f"a ground truth must be a call of a tool, got {source!r}"
        raise ValueError(msg)  # noqa: TRY004 - a bad value in a file
    named = {each.arg or "": ast.literal_eval(each.value) for each in node.keywords}
    placed = zip(tools[node.func.id].schema.model_fields, node.args, strict=False)
    return node.func.id, {name: ast.literal_eval(value) for name, value in placed} | named


def _environment(classes: Sequence[str], config: Mapping[str, Any]) -> dict[str, GoldTool]:
    tools: dict[str, GoldTool] = {}
    for name in classes:
        instance, harmless = fresh(name, config.get(name, {})), read_only(name)
        for method, body in inspect.getmembers(instance, inspect.ismethod):
            if not method.startswith("_"):
                tools[method] = tool_of(body, read_only=method in harmless)
    return tools


def fresh(name: str, config: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a class of the package
    """Return a new instance of one of the package's classes, in its starting state."""
    backend = package("bfcl_eval.constants.executable_backend_config")
    instance = getattr(package(backend.CLASS_FILE_PATH_MAPPING[name]), name)()
    if name not in backend.STATELESS_CLASSES:
        instance._load_scenario(copy.deepcopy({**config}))  # noqa: SLF001 - the only way in
    return instance


@cache
def read_only(name: str) -> frozenset[str]:
    """Return the methods of a class that change nothing."""
    return frozenset(method for methods in READ_ONLY[name].values() for method in methods)
