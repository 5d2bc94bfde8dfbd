"""The named reasons behind every decision: also the labels of metrics and logs."""

from typing import Literal

GuessVerdict = Literal[
    "run",
    "shadow",
    "undeclared",
    "not_early",
    "structure",
    "gated",
    "external",
    "gate",
    "unsure",
    "unknown_tool",
    "invalid",
    "unkeyable",
    "duplicate",
    "no_room",
    "turn_limit",
    "tainted_before",
    "writing",
    "late",
    "not_sync",
    "untrusted",
    "switched_off",
    "rate_limited",
    "warming_up",
    "backing_off",
    "not_worth",
    "over_budget",
]
"""Whether a guess runs, or the first reason it does not."""

ClaimVerdict = Literal[
    "hit",
    "joined",
    "shared",
    "no_guess",
    "mismatch",
    "failed",
    "tainted",
    "cancelled",
    "expired",
    "stale",
    "changed",
    "other_epoch",
    "fenced",
    "shadow_hit",
    "cannot_wait",
]
"""How a committed call was answered. `hit`, `joined` (the flight was still in the air) and
`shared` (a deterministic tool's earlier result) spare the call its run; the others run it."""

DiscardReason = Literal[
    "unclaimed",
    "voided",
    "truncated",
    "mismatch",
    "failed",
    "tainted",
    "expired",
    "stale",
    "changed",
    "other_epoch",
    "invalidated",
    "turn_failed",
    "run_ended",
    "no_room",
    "cancelled",
    "broken_link",
    "switched_off",
]
"""Why a flight will never answer a call."""

IdleReason = Literal[
    "off",
    "no_run_control",
    "no_contracts",
    "no_tools_bound",
    "not_streaming",
    "no_speculators",
    "no_guesses",
    "held_out",
    "switched_off",
]
"""Why a turn started no early run at all."""

EngineVerdict = Literal[
    "posted",
    "rejected",
    "refused",
    "failed",
    "resting",
    "late",
    "private",
    "continued",
    "dropped",
    "not_openai",
    "elsewhere",
    "no_model",
    "no_run_end",
]
"""What came of an early result, an answer or a model where there is an engine to tell."""

SERVED: frozenset[str] = frozenset({"hit", "joined", "shared"})
