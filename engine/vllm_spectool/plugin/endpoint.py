"""What vLLM's API server loads: the tool cache's routes, and the chat handler that uses it."""

import logging
import os
from argparse import Namespace
from typing import Any

from vllm_spectool._core.decide import ContinuationLimits
from vllm_spectool.plugin.cache import PluginCache
from vllm_spectool.plugin.support import (
    ServerFacts,
    draft_obstacle,
    obstacle,
    switched_off,
    untested_version,
)

logger = logging.getLogger("vllm.spectool")

TURNS = "VLLM_SPECTOOL_MAX_TURNS"
"""Environment variable: most turns of a response. `vllm-spectool serve` sets it."""
DEFAULT_TURNS = 8
ALLOW_DRIFT = "VLLM_SPECTOOL_ALLOW_DRIFT"
"""Environment variable: 1 lets responses go on where the template would write otherwise."""


class ToolCacheEndpoint:
    """The plugin named `spectool`. Whatever stands in its way, the server starts without it."""

    name = "spectool"
    required_tasks = ("generate",)

    def __init__(self) -> None:
        self.off = switched_off()
        self.cache = PluginCache(unable="the server is starting")

    def attach_router(self, app: Any) -> None:
        """Add the routes, unless the off switch is set."""
        if self.off:
            return
        try:
            self._add_routes(app)
        except Exception as error:  # noqa: BLE001
            self._turn_off(f"its routes cannot be added: {error!r}")

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Put the cache into the chat handler, or say in one line why not."""
        if self.off:
            return
        try:
            reason = self._install(engine_client, state, args)
        except Exception as error:  # noqa: BLE001
            reason = f"this vLLM is built otherwise: {error!r}"
        if reason is not None:
            self._turn_off(reason)
            return
        logger.info(
            "spectool is on (%s): at most %d turns a response%s",
            ", ".join(self.cache.status()["on"]),
            self.cache.limits.turns,
            "; drift is allowed" if self.cache.limits.allow_drift else "",
        )

    def _add_routes(self, app: Any) -> None:
        from vllm_spectool.plugin.facts import server_keys
        from vllm_spectool.web import routes

        keys = server_keys(app.state.args)
        app.router.routes.extend(routes(self.cache, limits=self.cache.entry_limits, api_keys=keys))

    def _install(self, engine_client: Any, state: Any, args: Namespace) -> str | None:
        import vllm

        reason = untested_version(vllm.__version__)
        if reason is not None:
            return reason
        from vllm_spectool.plugin.facts import facts_of, kv_room, special_tokens
        from vllm_spectool.plugin.metrics import publish
        from vllm_spectool.plugin.serving import ResidentServingChat

        config = engine_client.vllm_config
        facts = facts_of(config, args)
        reason = obstacle(facts)
        if reason is not None:
            return reason
        limits = ContinuationLimits(
            turns=int(os.environ.get(TURNS, DEFAULT_TURNS)),
            context_tokens=config.model_config.max_model_len,
            allow_drift=os.environ.get(ALLOW_DRIFT) == "1",
        )
        chat = ResidentServingChat.adopt(state.openai_serving_chat, self.cache)
        self._add_drafting(engine_client, chat, facts)
        publish(self.cache)
        tokens = special_tokens(engine_client.renderer.tokenizer)
        self.cache.turn_on(limits, tokens, kv_room(config))
        state.openai_serving_chat = chat
        return None

    def _add_drafting(self, engine_client: Any, chat: Any, facts: ServerFacts) -> None:
        if not facts.drafting_scheduler:
            return
        from vllm_spectool.plugin.drafting import drafting

        reason = draft_obstacle(facts)
        if reason is None:
            self.cache.drafting = drafting(engine_client, chat, self.cache.tally)
        else:
            logger.warning("spectool drafts no arguments: %s", reason)

    def _turn_off(self, reason: str) -> None:
        self.cache.unable = reason
        logger.warning("spectool is off: %s", reason)
