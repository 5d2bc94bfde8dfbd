"""Early tool calls for LangGraph and LangChain agents: same behaviour, less waiting.

Names resolve on first use, so that importing the package costs next to nothing and leaves
`langchain.agents` alone until a middleware is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_spectool._core.benefit import BenefitGate
    from langchain_spectool._core.budget import Budget, Budgets
    from langchain_spectool._core.events import Event
    from langchain_spectool._core.guess import Guess, TurnRequest
    from langchain_spectool._core.keys import call_key
    from langchain_spectool._core.policy import Policy
    from langchain_spectool._core.ports import Learner, Observer, Speculator
    from langchain_spectool._core.prices import Price
    from langchain_spectool.errors import SpectoolError
    from langchain_spectool.graph.declare import explain, speculatable, why_not
    from langchain_spectool.graph.mcp_trust import from_mcp
    from langchain_spectool.graph.middleware import SpeculationMiddleware
    from langchain_spectool.graph.model_node import SpeculativeModelNode
    from langchain_spectool.graph.speculation import Speculation
    from langchain_spectool.graph.tool_node import SpeculativeToolNode
    from langchain_spectool.speculators.chain import Chain
    from langchain_spectool.speculators.draft_model import DraftModel
    from langchain_spectool.speculators.early_dispatch import EarlyDispatch
    from langchain_spectool.speculators.ensemble import Ensemble
    from langchain_spectool.speculators.patterns.speculator import Patterns
    from langchain_spectool.speculators.rules import Rules
    from langchain_spectool.speculators.self_model import SelfModel
    from langchain_spectool.telemetry.event_log import EventLog
    from langchain_spectool.telemetry.log import LogObserver

__all__ = [
    "BenefitGate",
    "Budget",
    "Budgets",
    "Chain",
    "DraftModel",
    "EarlyDispatch",
    "Ensemble",
    "Event",
    "EventLog",
    "Guess",
    "Learner",
    "LogObserver",
    "Observer",
    "Patterns",
    "Policy",
    "Price",
    "Rules",
    "SelfModel",
    "SpectoolError",
    "Speculation",
    "SpeculationMiddleware",
    "SpeculativeModelNode",
    "SpeculativeToolNode",
    "Speculator",
    "TurnRequest",
    "call_key",
    "explain",
    "from_mcp",
    "speculatable",
    "why_not",
]

_HOMES = {
    "BenefitGate": "_core.benefit",
    "Budget": "_core.budget",
    "Budgets": "_core.budget",
    "Chain": "speculators.chain",
    "DraftModel": "speculators.draft_model",
    "EarlyDispatch": "speculators.early_dispatch",
    "Ensemble": "speculators.ensemble",
    "Event": "_core.events",
    "EventLog": "telemetry.event_log",
    "Guess": "_core.guess",
    "Learner": "_core.ports",
    "LogObserver": "telemetry.log",
    "Observer": "_core.ports",
    "Patterns": "speculators.patterns.speculator",
    "Policy": "_core.policy",
    "Price": "_core.prices",
    "Rules": "speculators.rules",
    "SelfModel": "speculators.self_model",
    "SpectoolError": "errors",
    "Speculation": "graph.speculation",
    "SpeculationMiddleware": "graph.middleware",
    "SpeculativeModelNode": "graph.model_node",
    "SpeculativeToolNode": "graph.tool_node",
    "Speculator": "_core.ports",
    "TurnRequest": "_core.guess",
    "call_key": "_core.keys",
    "explain": "graph.declare",
    "from_mcp": "graph.mcp_trust",
    "speculatable": "graph.declare",
    "why_not": "graph.declare",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})
