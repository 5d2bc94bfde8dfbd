"""Starts vLLM's server with the tool cache in it."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from itertools import chain

from vllm_spectool.plugin.endpoint import ALLOW_DRIFT, TURNS
from vllm_spectool.plugin.support import (
    DEFAULT_DRAFT_RUNNING,
    DRAFT_RUNNING,
    PROPOSER,
    SCHEDULER,
    ServerFacts,
    installed_vllm,
    obstacle,
    switched_off,
    untested_version,
)

PLUGINS = "VLLM_PLUGINS"
NAME = "spectool"
LOADED_UNASKED = tuple(
    f"vllm.{group}_plugins" for group in ("general", "io_processor", "platform", "stat_logger")
)
"""The groups whose plugins vLLM loads all of while `VLLM_PLUGINS` is not set."""
DRAFT_TOKENS = 16
"""Most tokens offered at once, unless told otherwise."""
TAKEN = ("--scheduler-cls", "--speculative-config", "-sc")
TAKEN_PREFIX = "--spec-"
"""Flags of vLLM that drafting arguments sets itself."""
CONFIG = "--config"
"""Flag of vLLM that names a file of more flags."""


DRIFT = (
    "spectool: drift is allowed: where the chat template would write a turn otherwise than it "
    "stands, a response goes on all the same, and may then say other things than a round trip"
)

UNREAD = "spectool: the --config file was not read: vLLM's log will say whether it is on"


class ConflictError(Exception):
    """A flag of vLLM's was given that one of this command's own sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """How arguments are drafted."""

    tokens: int = DRAFT_TOKENS
    """Most that are offered at once."""
    running: int | None = None
    """Requests above which none are offered; None for the plugin's own default."""

    @property
    def price(self) -> str:
        """One line for the person who asked for it."""
        running = DEFAULT_DRAFT_RUNNING if self.running is None else self.running
        return (
            "spectool: drafts cost vLLM's Model Runner V1, synchronous scheduling, and full CUDA "
            f"graphs for steps of {1 + self.tokens} tokens only; none while more than {running} "
            "requests run, or under a grammar; min_p and logit_bias are refused; "
            "what they gain on a GPU was not measured"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is set for the plugin."""

    turns: int | None = None
    """Most turns of a response; None for the plugin's own default."""
    drafts: Drafts | None = None
    """How arguments are drafted; None where they are not."""
    allow_drift: bool = False
    """Whether responses go on where the chat template would write otherwise what stands."""

    @property
    def environ(self) -> Mapping[str, str]:
        """What tells the plugin, in whichever process it is."""
        told = {
            TURNS: self.turns,
            DRAFT_RUNNING: self.drafts and self.drafts.running,
            ALLOW_DRIFT: 1 if self.allow_drift else None,
        }
        return {name: str(value) for name, value in told.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What to run, and what to say before."""

    command: Sequence[str]
    environ: Mapping[str, str]
    reason: str | None
    """Why the cache will be off; None if nothing speaks against it before vLLM has started."""
    drafts: Drafts | None = None
    """How arguments are drafted; None where they are not."""
    allow_drift: bool = False
    unread: bool = False
    """Whether a `--config` file says more, which was not read."""

    @property
    def line(self) -> str:
        """What the person reads who starts the server: a line, and one more for each price."""
        if self.reason:
            return f"spectool: off: {self.reason}"
        lines = ["spectool: on (O3, O2)" if self.drafts else "spectool: on (O3)"]
        if self.unread:
            lines.append(UNREAD)
        if self.allow_drift:
            lines.append(DRIFT)
        return "\n".join([*lines, self.drafts.price] if self.drafts else lines)


def plan(
    model: str,
    flags: Sequence[str],
    *,
    environ: Mapping[str, str],
    settings: Settings | None = None,
) -> Start:
    """Return how to start `vllm serve` for `model` with vLLM's own `flags`.

    Args:
        model: A name or a folder, as vLLM takes it.
        flags: Handed on as they are. With a tool parser, `--enable-auto-tool-choice` is added:
            without it no call is parsed.
        environ: The environment to start from.
        settings: What is set for the plugin.

    Raises:
        ConflictError: `flags` set what drafting sets itself.
    """
    settings = settings or Settings()
    reason = foreseen(flags, environ)
    given = _values(flags)
    added = (
        ["--enable-auto-tool-choice"]
        if "--tool-call-parser" in given and "--enable-auto-tool-choice" not in given
        else []
    )
    if settings.drafts is not None:
        _refuse_taken(given)
        if not reason:  # a server that is off anyway stays vLLM's own
            added += chain.from_iterable(drafting_flags(settings.drafts).items())
    plugins = ",".join(merged(environ.get(PLUGINS), loaded_unasked()))
    return Start(
        command=[
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", model, *added, *flags),
        ],
        environ={**environ, PLUGINS: plugins, **settings.environ},
        reason=reason,
        drafts=settings.drafts,
        allow_drift=settings.allow_drift or environ.get(ALLOW_DRIFT) == "1",
        unread=CONFIG in given,
    )


def merged(allowed: str | None, others: Iterable[str]) -> list[str]:
    """Return the plugins to name, this one among them.

    Naming any plugin turns the unnamed ones off. So where none was named, all are that vLLM would
    have loaded.
    """
    named = list(others) if allowed is None else [each for each in allowed.split(",") if each]
    return list(dict.fromkeys([*named, NAME]))


def loaded_unasked() -> list[str]:
    """Return the names of the installed plugins that vLLM loads while none is named."""
    return sorted({each.name for group in LOADED_UNASKED for each in entry_points(group=group)})


def foreseen(flags: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return why the cache will be off, as far as flags and versions tell."""
    if switched_off(environ):
        return "VLLM_SPECTOOL is 0"
    version = installed_vllm()
    if version is None:
        return "vLLM is not installed in this environment"
    values = _values(flags)
    facts = ServerFacts(
        tool_parser="--tool-call-parser" in values or CONFIG in values,  # the file may name one
        api_servers=int(values.get("--api-server-count") or values.get("-asc") or 1),
        speculative_decoding=any(_drafts(name) for name in values),
        pipeline_parallel=int(values.get("--pipeline-parallel-size") or values.get("-pp") or 1),
        kv_connector="--kv-transfer-config" in values,
        statistics="--disable-log-stats" not in values,
    )
    return untested_version(version) or obstacle(facts)


def run(start: Start) -> None:
    """Become the server: this process is replaced."""
    sys.stdout.write(f"{start.line}\n")
    sys.stdout.flush()
    os.execve(start.command[0], list(start.command), dict(start.environ))  # noqa: S606


def _refuse_taken(given: Iterable[str]) -> None:
    taken = sorted(flag for flag in given if flag == TAKEN[0] or _drafts(flag))
    if taken:
        msg = f"--draft-arguments sets {' and '.join(TAKEN[:2])} itself: leave out {taken[0]}"
        raise ConflictError(msg)


def _drafts(flag: str) -> bool:
    return flag in TAKEN[1:] or flag.startswith(TAKEN_PREFIX)


def drafting_flags(drafts: Drafts) -> Mapping[str, str]:
    """Return the flags of vLLM that drafting arguments takes."""
    speculative = {
        "method": "custom_class",
        "model": PROPOSER,
        "num_speculative_tokens": drafts.tokens,
    }
    return {"--scheduler-cls": SCHEDULER, "--speculative-config": json.dumps(speculative)}


def _values(flags: Sequence[str]) -> dict[str, str]:
    """Return what each flag is set to, by the name that vLLM reads in whatever spelling."""
    values: dict[str, str] = {}
    for index, flag in enumerate(flags):
        name, has_value, value = flag.partition("=")
        following = flags[index + 1] if index + 1 < len(flags) else ""
        if name.startswith("-"):
            name = name.partition(".")[0]  # a field of a JSON value may be set alone
            name = name.replace("_", "-") if name.startswith("--") else name
            values[name] = value if has_value else "" if following.startswith("-") else following
    return values
