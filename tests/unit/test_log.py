"""`LogObserver`: every event is one line at its level."""

import logging
from typing import Any

import pytest

from langchain_spectool import Event, LogObserver

EVERYTHING: dict[str, Any] = {
    "turn": 3,
    "verdict": "hit",
    "tool": "look",
    "source": "rules",
    "position": 0,
    "confidence": 0.5,
    "started_s": 1.0,
    "spent_s": 0.123456,
    "waited_s": 0.2,
    "hidden_s": 0.3,
    "key_hash": "abc123",
    "detail": "as planned",
    "usage": (7, 2),
}


def _lines(caplog: pytest.LogCaptureFixture, **fields: Any) -> list[tuple[int, str]]:
    caplog.set_level(logging.DEBUG, "langchain_spectool")
    caplog.clear()
    LogObserver().on_event(Event(at_s=0.0, **fields))
    return [(record.levelno, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        ("guess", logging.DEBUG),
        ("landed", logging.DEBUG),
        ("turn_committed", logging.DEBUG),
        ("claim", logging.INFO),
        ("call_ended", logging.DEBUG),
        ("discarded", logging.DEBUG),
        ("turn_ended", logging.INFO),
        ("usage", logging.DEBUG),
        ("error", logging.WARNING),
    ],
)
def test_each_kind_has_its_level(kind: Any, level: int, caplog: pytest.LogCaptureFixture) -> None:
    """Failures are warnings, claims and turns are news, the rest is for debugging."""
    [(logged, line)] = _lines(caplog, kind=kind, **EVERYTHING)
    assert logged == level
    assert line.startswith(f"turn 3 {kind} hit ")


def test_an_engine_of_no_use_is_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    """For each reason; what an engine does otherwise is for debugging."""
    caplog.set_level(logging.DEBUG, "langchain_spectool")
    observer = LogObserver()
    for verdict, detail in [
        *[("refused", "the engine answered 404")] * 2,
        ("refused", "the engine answered 401"),
        *[("elsewhere", ""), ("not_openai", ""), ("no_run_end", ""), ("no_model", "")],
        *[("posted", ""), ("continued", ""), ("failed", "")],
    ]:
        observer.on_event(Event(kind="engine", at_s=0.0, verdict=verdict, detail=detail))
    warned, other = logging.WARNING, logging.DEBUG
    levels = [record.levelno for record in caplog.records]
    assert levels == [warned, other, *[warned] * 5, *[other] * 3]


def test_line_names_what_is_there(caplog: pytest.LogCaptureFixture) -> None:
    """A field that says something is named with its value; seconds are rounded."""
    [(_, line)] = _lines(caplog, kind="claim", **EVERYTHING)
    assert line == (
        "turn 3 claim hit tool=look source=rules position=0 spent_s=0.1235 waited_s=0.2 "
        "hidden_s=0.3 key=abc123 'as planned'"
    )


def test_line_leaves_out_what_is_not(caplog: pytest.LogCaptureFixture) -> None:
    """Empty fields, and times that round to nothing, take no room."""
    [(_, line)] = _lines(caplog, kind="turn_ended", verdict="", spent_s=0.00001)
    assert line == "turn 0 turn_ended"


@pytest.mark.parametrize(
    "hostile",
    [
        "two\nlines",
        "two\r\nlines",
        "\x1b[31mred",
        "null\x00",
        "page\x0cbreak",
        "line\u2028separator",
        "next\x85line",
        "lone \ud800 surrogate",
        "%s %d %(name)s",
    ],
)
def test_hostile_text_stays_on_its_line(hostile: str, caplog: pytest.LogCaptureFixture) -> None:
    """What a model or a user wrote is escaped: it forges no line and no colour."""
    [(_, line)] = _lines(caplog, kind="error", verdict="ValueError", detail=hostile)
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert line.encode()


def test_own_logger() -> None:
    """A given logger is written to, and to no other."""
    records: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger = logging.getLogger("langchain_spectool.mine")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(Kept())
    observer = LogObserver(logger)
    observer.on_event(Event(kind="claim", at_s=0.0, verdict="hit"))
    observer.on_event(Event(kind="guess", at_s=0.0, verdict="run"))  # below the logger's level
    assert [(r.name, r.levelno, r.getMessage()) for r in records] == [
        ("langchain_spectool.mine", logging.INFO, "turn 0 claim hit")
    ]


def test_no_line_is_made_that_nobody_reads() -> None:
    """A logger that takes no such level costs no formatting."""

    class Unprintable(str):
        __slots__ = ()

        def __repr__(self) -> str:
            raise AssertionError("formatted for nobody")

    logger = logging.getLogger("langchain_spectool.quiet")
    logger.setLevel(logging.ERROR)
    LogObserver(logger).on_event(Event(kind="error", at_s=0.0, detail=Unprintable("x")))
