"""Values are written for people, and foreign texts cannot hide anything."""

import pytest

from langchain_spectool.bench.report_page.tables import (
    Table,
    counted,
    interval,
    per_cent,
    ratio,
    seconds,
    shown,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\u2013"),
        (0.0, "0\u00a0ms"),
        (0.1234, "123\u00a0ms"),
        (-0.5, "-500\u00a0ms"),
        (1.5, "1.50\u00a0s"),
        (1234.56, "1,234.6\u00a0s"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    """Times show three digits."""
    assert seconds(value) == text


def test_shares() -> None:
    """Shares are in per cent; a share of nothing is none."""
    assert per_cent(0.125) == "12.5\u00a0%"
    assert per_cent(ratio(1, 0)) == "\u2013"
    assert interval(-1, 2.25) == "-1.0\u00a0to\u00a02.2"


@pytest.mark.parametrize(("number", "text"), [(1, "1 turn"), (0, "0 turns"), (1234, "1,234 turns")])
def test_counted(number: int, text: str) -> None:
    """A number and its noun agree."""
    assert counted(number, "turn") == text.replace(" ", "\u00a0")


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("read\u202efile", "read\\u202efile"),
        ("a\x00b\nc", "a\\u0000b\\u000ac"),
        ("\ud800", "\\ud800"),
        ("x" * 81, "x" * 79 + "\u2026"),
        ("x" * 80, "x" * 80),
        ("日本", "日本"),
    ],
)
def test_foreign_texts(text: str, seen: str) -> None:
    """What turns text around or is not seen is spelled out; what is too long is cut."""
    assert shown(text) == seen


def test_cells() -> None:
    """What reads as a number is told from texts; None is a dash."""
    cells = [1234, 0.12345, 0.0, None, "x" * 99, 2.0, per_cent(0.5), seconds(-0.02), "1 to 2"]
    table = Table(caption="c", columns=("a",) * len(cells), rows=[cells])
    assert table.written[0] == [
        ("1,234", True),
        ("0.123", True),
        ("0", True),
        ("\u2013", True),
        ("x" * 79 + "\u2026", False),
        ("2", True),
        ("50.0\u00a0%", True),
        ("-20\u00a0ms", True),
        ("1 to 2", False),
    ]
    assert table.numeric == [is_number for _, is_number in table.written[0]]


def test_longer_cells() -> None:
    """A table may allow longer texts."""
    table = Table(caption="c", columns=("a",), rows=[["x" * 99]], longest=99)
    assert table.written == [[("x" * 99, False)]]
