"""Starts vLLM's server with the tool cache in it."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points

from vllm_spectool.plugin.endpoint import TURNS
from vllm_spectool.plugin.support import (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What to run, and what to say before."""

    command: Sequence[str]
    environ: Mapping[str, str]
    reason: str | None
    """Why the cache will be off; None if nothing speaks against it before vLLM has started."""

    @property
    def line(self) -> str:
        """One line for the person who starts the server."""
        return f"spectool: off: {self.reason}" if self.reason else "spectool: on (O3)"


def plan(
    model: str, flags: Sequence[str], *, turns: int | None = None, environ: Mapping[str, str]
) -> Start:
    """Return how to start `vllm serve` for `model` with vLLM's own `flags`.

    Args:
        model: A name or a folder, as vLLM takes it.
        flags: Handed on as they are. With a tool parser, `--enable-auto-tool-choice` is added:
            without it no call is parsed.
        turns: Most turns of a response; None for the plugin's own default.
        environ: The environment to start from.
    """
    given = {flag.split("=", maxsplit=1)[0] for flag in flags}
    added = (
        ["--enable-auto-tool-choice"]
        if "--tool-call-parser" in given and "--enable-auto-tool-choice" not in given
        else []
    )
    made = {**environ, PLUGINS: ",".join(merged(environ.get(PLUGINS), loaded_unasked()))}
    if turns is not None:
        made[TURNS] = str(turns)
    return Start(
        command=[
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", model, *added, *flags),
        ],
        environ=made,
        reason=foreseen(flags, environ),
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
        tool_parser="--tool-call-parser" in values,
        api_servers=int(values.get("--api-server-count") or values.get("-asc") or 1),
        speculative_decoding="--speculative-config" in values,
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


def _values(flags: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for index, flag in enumerate(flags):
        name, has_value, value = flag.partition("=")
        following = flags[index + 1] if index + 1 < len(flags) else ""
        if name.startswith("-"):
            values[name] = value if has_value else "" if following.startswith("-") else following
    return values
