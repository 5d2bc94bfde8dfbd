"""On a real vLLM, drafts save steps and change no token, with responses in place and without."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_spectool.bench.engine.server import Start, started
from live_client import Client, Turn, defaults, results, said, streamed, whole
from live_prompts import TOOLS, WEATHER, parallel, sent_on, single

HERE = Path(__file__).parent
HOME = Path(os.environ["SPECTOOL_VLLM"])
FLAGS = (
    *("--draft-arguments", "--served-model-name", "smollm2", "--dtype", "float32"),
    *("--enforce-eager", "--max-model-len", "2048"),
    *("--chat-template", str(HERE.parent / "smollm2_tools.jinja")),
)
Outputs = Mapping[tuple[str, str], str]
Messages = Sequence[Mapping[str, Any]]


def weather(*cities: str, **others: str) -> Outputs:
    """Return the tool's outputs."""
    told = {city: WEATHER[city] for city in cities} | others
    return {("get_weather", json.dumps({"city": city})): output for city, output in told.items()}


QUESTIONS: Mapping[str, tuple[Messages, Outputs]] = {
    "single": (single("Paris"), weather("Paris")),
    "parallel": (parallel("Paris", "Rome"), weather("Paris", "Rome")),
    "three turns": (sent_on("Lyon"), weather("Paris", Lyon="unknown, try Paris")),
}
WRONG = weather(Venice="wet", Boston="cold")


@pytest.fixture(scope="module")
def server() -> Iterator[Client]:
    """A server of its own, which drafts arguments."""
    start = Start(python=HOME / "venv/bin/python", model=HOME / "smollm2", flags=FLAGS)
    with started(start) as made, Client(made.url).http as http:
        client = Client(made.url)
        client.http = http
        yield client


def ask(client: Client, messages: Messages, posted: Outputs, **fields: Any) -> list[Turn]:
    """Send one opted-in request after posting outputs."""
    request_id, key = uuid4().hex, uuid4().hex
    body = {**defaults(messages, stream=fields.pop("stream", False)), "tools": TOOLS, **fields}
    body["vllm_xargs"] = {"spectool_key": key, **fields.get("vllm_xargs", {})}
    assert client.post(request_id, key, posted) == len(posted)
    headers = {"X-Request-Id": request_id}
    answer = client.http.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return streamed(answer.text) if body["stream"] else whole(answer.json())


def trips(
    client: Client, messages: Messages, outputs: Outputs, posted: Outputs, *, stream: bool
) -> list[Turn]:
    """Make round trips of requests that are offered drafts, and do not go on in place."""
    history, turns = list(messages), list[Turn]()
    while True:
        # A seed keeps a response from going on, and changes nothing of what is greedy.
        (turn,) = ask(client, history, posted, seed=1, stream=stream)
        turns.append(turn)
        if not turn.calls:
            return turns
        history += [said(turn), *results(turn, outputs)]


def counted(client: Client, asked: Callable[[], list[Turn]]) -> tuple[list[Turn], float]:
    """Return turns, and how many steps the engine took for them."""
    name = "vllm:iteration_tokens_total_count"
    before = client.metric(name)
    turns = asked()
    return turns, client.metric(name) - before


def test_it_says_that_drafts_are_on(server: Client) -> None:
    """And responses go on in place under vLLM's speculative decoding."""
    assert server.http.get("/v1/cache-tool-output").json()["on"] == ["o3", "o2"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", QUESTIONS)
def test_every_way_says_the_same(server: Client, kind: str, stream: bool) -> None:
    """Token by token; with drafts in fewer steps, with wrong ones in no more."""
    messages, outputs = QUESTIONS[kind]
    fields: dict[str, Any] = {"stream": stream}
    plain: dict[str, Any] = {**fields, "vllm_xargs": {"spectool_drafts": 0}}
    trip, steps = counted(
        server, lambda: server.round_trip(messages, outputs, stream=stream, tools=TOOLS)
    )
    place, place_steps = counted(server, lambda: ask(server, messages, outputs, **plain))
    drafted, drafted_steps = counted(
        server, lambda: trips(server, messages, outputs, outputs, stream=stream)
    )
    both, both_steps = counted(server, lambda: ask(server, messages, outputs, **fields))
    wrong, wrong_steps = counted(
        server, lambda: trips(server, messages, outputs, WRONG, stream=stream)
    )
    assert len(trip) > 1
    assert place == drafted == both == wrong == trip
    assert max(drafted_steps, both_steps) < 0.8 * steps
    assert max(place_steps, wrong_steps) <= steps


def test_sampling_is_sampling(server: Client) -> None:
    """Near temperature 0 it is greedy: the build for CPUs is mended where it samples noise."""
    messages, outputs = QUESTIONS["single"]
    greedy = ask(server, messages, outputs)
    for _ in range(3):
        assert ask(server, messages, outputs, temperature=0.01) == greedy


def test_what_was_offered_is_counted(server: Client) -> None:
    """By vLLM what was accepted of it."""
    messages, outputs = QUESTIONS["single"]
    before = {name: server.metric(name) for name in ACCEPTED_AND_OFFERED}
    ask(server, messages, outputs)
    server.metric(ACCEPTED_AND_OFFERED[0])  # asks the engine, for the next to show
    grown = [server.metric(name) - before[name] for name in ACCEPTED_AND_OFFERED]
    assert 0 < grown[0] <= grown[1]


ACCEPTED_AND_OFFERED = (
    "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:spectool_drafted_total",
)


def test_the_scheduler_keeps_what_stands_and_takes_no_ones_blocks() -> None:
    """Simulated with vLLM's: every position was computed from what stands there in the end."""
    command = [str(HOME / "venv/bin/python"), str(HERE / "simulation.py"), str(HOME / "smollm2")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["without the clamp"] == told["sessions"]
    assert told["steps"]["right"] < 0.6 * told["steps"]["none"]
    assert told["steps"]["wrong"] <= told["steps"]["none"]
    preemptions = told["preemptions"]
    assert preemptions["none"] > 0
    assert max(preemptions.values()) <= preemptions["none"]
