"""Whether the plugin can work in this server, and if not, why: in one line."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version

SWITCH = "VLLM_SPECTOOL"
"""Environment variable that turns the plugin off when it is `0`."""
DRAFT_RUNNING = "VLLM_SPECTOOL_DRAFT_MAX_RUNNING"
"""Environment variable: drafts are offered while no more requests run than this."""
DEFAULT_DRAFT_RUNNING = 8
SCHEDULER = "vllm_spectool.plugin.scheduler.DraftingScheduler"
PROPOSER = "vllm_spectool.plugin.proposer.NoDrafts"
UTILITY = "spectool_take_drafts"
"""What the engine core is called with."""
TESTED = "0.32"
"""The releases of vLLM this was run on begin with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What decides whether responses can go on in place."""

    tool_parser: bool
    """Whether `--enable-auto-tool-choice` and a `--tool-call-parser` are given."""
    api_servers: int = 1
    speculative_decoding: bool = False
    drafting_scheduler: bool = False
    """Whether the scheduler is this package's, which knows where a turn ended."""
    own_proposer: bool = False
    """Whether nothing else proposes drafts."""
    asynchronous: bool = False
    data_parallel: int = 1
    pipeline_parallel: int = 1
    kv_connector: bool = False
    encoder_decoder: bool = False
    keeps_state: bool = False
    """Whether the model keeps more than attention's keys and values (Mamba, hybrids)."""
    statistics: bool = True
    """Whether vLLM tells of preemptions; `--disable-log-stats` keeps it from it."""


def switched_off(environ: Mapping[str, str] = os.environ) -> bool:
    """Say whether the off switch is set."""
    return environ.get(SWITCH) == "0"


def untested_version(release: str) -> str | None:
    """Return why the plugin stays off under this release of vLLM; None if it does not."""
    if release.split("+", maxsplit=1)[0].startswith(f"{TESTED}."):
        return None
    return f"vLLM {release} is not a release this was tested with; it needs {TESTED}.x"


def obstacle(facts: ServerFacts) -> str | None:
    """Return the first reason why responses cannot go on in place; None if they can."""
    reasons = {
        "no tool calls are parsed: pass --enable-auto-tool-choice and --tool-call-parser": (
            not facts.tool_parser
        ),
        "several API servers would each have a cache of their own: pass --api-server-count 1": (
            facts.api_servers > 1
        ),
        "speculative decoding may compute past the end of a turn: remove --speculative-config "
        "(--draft-arguments can stand in its place)": (
            facts.speculative_decoding and not facts.drafting_scheduler
        ),
        "pipeline parallelism was not tested": facts.pipeline_parallel > 1,
        "a KV connector may hand a turn's blocks on": facts.kv_connector,
        "encoder-decoder models have no response to go on with": facts.encoder_decoder,
        "models that keep a state beside attention were not tested": facts.keeps_state,
        "preemptions must be seen: drop --disable-log-stats": not facts.statistics,
    }
    return next((reason for reason, met in reasons.items() if met), None)


def draft_obstacle(facts: ServerFacts) -> str | None:
    """Return why arguments are not drafted in a server with this package's scheduler."""
    reasons = {
        "speculative decoding is off": not facts.speculative_decoding,
        "another proposer drafts": not facts.own_proposer,
        "scheduling is asynchronous": facts.asynchronous,
        "data parallelism was not tested": facts.data_parallel > 1,
    }
    return next((reason for reason, met in reasons.items() if met), None)


def installed_vllm() -> str | None:
    """Return the version of the installed vLLM, whatever its distribution is called."""
    for name in packages_distributions().get("vllm", ()):
        return version(name)
    return None
