"""What vLLM's API server loads: the tool cache's routes, and the chat handler that uses it."""

import logging
import os
from argparse import Namespace
from typing import Any

from vllm_spectool._core.decide import ContinuationLimits
from vllm_spectool.plugin.cache import PluginCache
from vllm_spectool.plugin.support import obstacle, switched_off, untested_version

logger = logging.getLogger("vllm.spectool")

TURNS = "VLLM_SPECTOOL_MAX_TURNS"
"""Environment variable: most turns of a response. `vllm-spectool serve` sets it."""
DEFAULT_TURNS = 8


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
        logger.info("spectool is on: at most %d turns a response", self.cache.limits.turns)

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
        reason = obstacle(facts_of(config, args))
        if reason is not None:
            return reason
        limits = ContinuationLimits(
            turns=int(os.environ.get(TURNS, DEFAULT_TURNS)),
            context_tokens=config.model_config.max_model_len,
        )
        chat = ResidentServingChat.adopt(state.openai_serving_chat, self.cache)
        publish(self.cache)
        tokens = special_tokens(engine_client.renderer.tokenizer)
        self.cache.turn_on(limits, tokens, kv_room(config.cache_config))
        state.openai_serving_chat = chat
        return None

    def _turn_off(self, reason: str) -> None:
        self.cache.unable = reason
        logger.warning("spectool is off: %s", reason)
