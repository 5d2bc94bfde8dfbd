"""`EventLog`: what it writes is read back, and what it did not write is named and skipped."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from langchain_spectool import Event
from langchain_spectool.errors import SpectoolError
from langchain_spectool.telemetry.event_log import EventLog, read_events

FULL = Event(
    kind="claim",
    at_s=3.5,
    turn=7,
    verdict="hit",
    tool="look\n\x1b[31m\u2028",
    source="rules",
    position=0,
    confidence=0.5,
    started_s=1.0,
    spent_s=0.25,
    waited_s=0.125,
    hidden_s=0.125,
    key_hash="abc123",
    detail="what a user wrote",
    usage=(7, 2),
)
BARE = Event(kind="turn_ended", at_s=4.0, turn=8)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Name a log that is not there yet."""
    return tmp_path / "events.jsonl"


def test_events_come_back(log: Path) -> None:
    """With `detail`, every field survives, hostile names included, each event on one line."""
    with EventLog(log, detail=True) as observer:
        observer.on_event(FULL)
        observer.on_event(BARE)
    (full, bare), bad = read_events(log)
    assert (replace(full, key_hash=FULL.key_hash), bare, bad) == (FULL, BARE, [])
    assert len(log.read_text().splitlines()) == 2


def test_calls_are_told_apart_within_one_log_alone(tmp_path: Path) -> None:
    """Equal calls stay equal; the digest that could be found by trying is in no line."""
    hashes: list[list[str]] = []
    for name in ("one", "other"):
        with EventLog(tmp_path / name) as observer:
            for key_hash in ("abc123", "abc123", "def456"):
                observer.on_event(replace(FULL, key_hash=key_hash))
        assert "abc123" not in (tmp_path / name).read_text()
        hashes.append([event.key_hash for event in read_events(tmp_path / name)[0]])
    for first, second, third in hashes:
        assert first == second != third
    assert not {*hashes[0]} & {*hashes[1]}


def test_detail_stays_out_unless_asked_for(log: Path) -> None:
    """What a model or a user wrote is in no line."""
    with EventLog(log) as observer:
        observer.on_event(FULL)
    assert "wrote" not in log.read_text()
    [event], _ = read_events(log)
    assert (event.detail, event.spent_s) == ("", FULL.spent_s)


def test_lines_are_there_at_once(log: Path) -> None:
    """A log that nobody closed holds all its events."""
    observer = EventLog(log)
    observer.on_event(BARE)
    assert read_events(log) == ([BARE], [])
    observer.close()


def test_closed_log_says_so(log: Path) -> None:
    """An event after the end is an error for the broadcast to report, not a silent loss."""
    observer = EventLog(log)
    observer.close()
    with pytest.raises(ValueError, match="closed"):
        observer.on_event(BARE)


def test_two_processes_turns_stay_apart(log: Path) -> None:
    """Both count from 1; in one file the second one's turns get numbers of their own."""
    with EventLog(log) as first, EventLog(log) as second:
        for observer in (first, second, first, second):
            observer.on_event(Event(kind="guess", at_s=1.0, turn=1))
        second.on_event(Event(kind="error", at_s=0.0))
    events, _ = read_events(log)
    assert [event.turn for event in events] == [1, 2, 1, 2, 0]


GOOD = '{"kind": "claim", "at_s": 1.0}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("not json", "not JSON"),
        ('{"kind": "cla', "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"at_s": 1.0}', "`kind`"),
        ('{"kind": "claim"}', "`at_s`"),
        ('{"kind": "party", "at_s": 1.0}', "`kind`"),
        ('{"kind": "claim", "at_s": "soon"}', "`at_s`"),
        ('{"kind": "claim", "at_s": NaN}', "not finite"),
        ('{"kind": "claim", "at_s": 1e999}', "not finite"),
        ('{"kind": "claim", "at_s": 1.7e308}', "farther from 0"),
        ('{"kind": "claim", "at_s": 1, "spent_s": -1.7e308}', "farther from 0"),
        ('{"kind": "claim", "at_s": 1, "turn": ' + "9" * 4_300 + "}", "farther from 0"),
        ('{"kind": "usage", "at_s": 1, "usage": [' + "9" * 4_300 + ", 1]}", "farther from 0"),
        ('{"kind": "turn_committed", "at_s": 1, "position": 30000000}', "more than 1000 calls"),
        ('{"kind": "claim", "at_s": 1, "usage": [1]}', "`usage"),
        ('{"kind": "claim", "at_s": 1, "turn": "' + "9" * 5_000 + '"}', "`turn`"),
        ("[" * 100_000, "nested too deep"),
        ('"' + "x" * 3 * 2**20, "not JSON"),
        ("\udcff", "not UTF-8"),
    ],
)
def test_bad_lines_are_named_and_skipped(line: str, reason: str, log: Path) -> None:
    """What is no event costs its line only, and the message fits on one line of a terminal."""
    text = f"{GOOD}\n{line}\n\n{GOOD}\n"
    log.write_bytes(text.encode("utf-8", "surrogateescape"))
    events, [bad] = read_events(log)
    assert len(events) == 2
    assert bad.startswith("line 2: ")
    assert reason in bad
    assert bad.isprintable()
    assert len(bad) < 300


def test_fields_of_later_versions_are_ignored(log: Path) -> None:
    """A field that this version does not know changes nothing."""
    log.write_text(json.dumps({"kind": "guess", "at_s": 1, "mood": "good"}))
    assert read_events(log) == ([Event(kind="guess", at_s=1.0)], [])


@pytest.mark.parametrize("where", ["missing.jsonl", "."])
def test_what_cannot_be_read_is_named(where: str, tmp_path: Path) -> None:
    """A file that is not there, or is a folder, is the caller's error."""
    with pytest.raises(SpectoolError, match="cannot be read"):
        read_events(tmp_path / where)


_FORK = """
import os, select, signal, sys, threading
from langchain_spectool import Event
from langchain_spectool.telemetry.event_log import EventLog

event = Event(kind="claim", at_s=1.0, tool="x" * 1000)
reader = os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK)
log = EventLog(sys.argv[1])

def fill():
    while True:
        log.on_event(event)

threading.Thread(target=fill, daemon=True).start()
writer = os.open(sys.argv[1], os.O_WRONLY)
while select.select([], [writer], [], 0)[1]:
    pass
child = os.fork()
if child == 0:
    signal.alarm(5)
    log.on_event(event)
    os._exit(0)
ended = 0
while not ended:
    if select.select([reader], [], [], 0.01)[0]:
        os.read(reader, 2**16)
    ended, status = os.waitpid(child, os.WNOHANG)
os._exit(status != 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_child_forked_amid_a_line_can_write(tmp_path: Path) -> None:
    """A thread that writes while its process forks leaves nothing locked in the child."""
    os.mkfifo(tmp_path / "pipe")
    run = [sys.executable, "-W", "ignore", "-c", _FORK, str(tmp_path / "pipe")]
    assert subprocess.run(run, check=False, timeout=30).returncode == 0
