"""Whether the plugin can work in a server, and what it says if not."""

from dataclasses import replace

import pytest

from vllm_spectool.plugin.support import (
    ServerFacts,
    draft_obstacle,
    obstacle,
    switched_off,
    untested_version,
)

GOOD = ServerFacts(tool_parser=True)


def test_a_server_with_a_tool_parser_is_able() -> None:
    """The defaults of vLLM are no obstacle."""
    assert obstacle(GOOD) is None


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"tool_parser": False}, "--tool-call-parser"),
        ({"api_servers": 2}, "--api-server-count"),
        ({"speculative_decoding": True}, "speculative"),
        ({"pipeline_parallel": 2}, "pipeline"),
        ({"kv_connector": True}, "KV connector"),
        ({"encoder_decoder": True}, "encoder-decoder"),
        ({"keeps_state": True}, "state"),
        ({"statistics": False}, "--disable-log-stats"),
    ],
)
def test_each_obstacle_is_named(change: dict[str, object], word: str) -> None:
    """One line, with the flag at fault where there is one."""
    reason = obstacle(replace(GOOD, **change))  # pyright: ignore[reportArgumentType]
    assert reason is not None
    assert word in reason
    assert "\n" not in reason


def test_speculative_decoding_needs_the_scheduler_that_knows_where_a_turn_ends() -> None:
    """This package's; then it is no obstacle, whoever proposes."""
    speculative = replace(GOOD, speculative_decoding=True)
    assert obstacle(replace(speculative, drafting_scheduler=True)) is None
    assert "--draft-arguments" in (obstacle(speculative) or "")


DRAFTING = replace(GOOD, speculative_decoding=True, drafting_scheduler=True, own_proposer=True)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"speculative_decoding": False}, "speculative"),
        ({"own_proposer": False}, "proposer"),
        ({"asynchronous": True}, "asynchronous"),
        ({"data_parallel": 2}, "data parallelism"),
    ],
)
def test_what_keeps_arguments_from_being_drafted(change: dict[str, object], word: str) -> None:
    """Responses go on in place all the same."""
    assert draft_obstacle(DRAFTING) is None
    facts = replace(DRAFTING, **change)  # pyright: ignore[reportArgumentType]
    assert word in (draft_obstacle(facts) or "")
    assert obstacle(facts) is None


@pytest.mark.parametrize("release", ["0.32.0", "0.32.1", "0.32.0+cpu", "0.32.2rc1"])
def test_tested_releases(release: str) -> None:
    """All of 0.32."""
    assert untested_version(release) is None


@pytest.mark.parametrize("release", ["0.33.0", "0.31.9", "0.3.2", "0.320.0", "1.0.32.0"])
def test_other_releases_are_refused(release: str) -> None:
    """With both versions named."""
    reason = untested_version(release)
    assert reason is not None
    assert release in reason
    assert "0.32" in reason


@pytest.mark.parametrize(
    ("environ", "off"),
    [({}, False), ({"VLLM_SPECTOOL": "0"}, True), ({"VLLM_SPECTOOL": "1"}, False)],
)
def test_the_off_switch(environ: dict[str, str], off: bool) -> None:
    """Only `0` turns it off."""
    assert switched_off(environ) is off
