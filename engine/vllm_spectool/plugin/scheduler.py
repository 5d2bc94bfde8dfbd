"""vLLM's scheduler, which also offers drafted arguments. Runs in the engine core.

Only for `--draft-arguments`: without it vLLM's own scheduler is used. `decisions/0016` says what
it costs. vLLM calls this interface not public; the code is against 0.32.
"""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from vllm.sampling_params import SamplingParams, SamplingType
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from vllm_spectool._core.draft_book import DraftBook
from vllm_spectool._core.drafts import Draft
from vllm_spectool._core.terms import drafts_key
from vllm_spectool.plugin.support import DEFAULT_DRAFT_RUNNING, DRAFT_RUNNING, UTILITY

logger = logging.getLogger("vllm.spectool")


class DraftingScheduler(Scheduler):
    """Offers what a request is likely to write next to the model for verifying."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._book = DraftBook()
        self._most_running = int(os.environ.get(DRAFT_RUNNING, DEFAULT_DRAFT_RUNNING))
        # Asynchronous scheduling takes drafts from the worker, before a token is known here.
        self._drafting = self.num_spec_tokens > 0 and not self.scheduler_config.async_scheduling
        _add_utility()

    def take_drafts(self, orders: Sequence[Sequence[Any]]) -> Mapping[str, int]:
        """Do what the API server asks for; return how much was offered so far.

        Args:
            orders: A key's digest, and its drafts (tokens that have to be written first, all
                tokens, seconds to live), or None to forget what it has.
        """
        now_s = time.monotonic()
        for key_digest, drafts in orders:
            if drafts is None:
                self._book.forget(key_digest)
                continue
            made = [
                Draft(anchor=anchor, token_ids=tuple(token_ids), keep_alive_s=keep_alive_s)
                for anchor, token_ids, keep_alive_s in drafts
            ]
            self._book.put(key_digest, made, now_s)
        return dict(self._book.totals)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Offer drafts, then schedule as ever."""
        if self._drafting and self._book and len(self.running) <= self._most_running:
            self._offer()
        return super().schedule(*args, **kwargs)

    def add_request(self, request: Request) -> None:
        """Note the key of a request; a session adds one for each of its turns."""
        key = _drafts_key(request.sampling_params)
        if key is not None and request.request_id not in self.requests:
            self._book.begin(request.request_id, key)
        super().add_request(request)

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self._book.end(request.request_id)
        return super()._free_request(request, *args, **kwargs)

    def _handle_stopped_request(self, request: Request) -> bool:
        # Drafts that were accepted behind a stop token are dropped from the output, and their
        # positions still count as computed. A session would go on behind them, and keep the stop
        # token twice (`_update_request_as_session`); the last token is never computed.
        if request.resumable:
            computed = request.num_computed_tokens - request.num_output_placeholders
            request.num_computed_tokens -= max(0, computed - (request.num_tokens - 1))
        return super()._handle_stopped_request(request)

    def _offer(self) -> None:
        try:
            if not self._has_room():
                return
            offers = self._book.offers(self.running, self.num_spec_tokens, time.monotonic())
            for request, token_ids in offers:
                request.spec_token_ids = token_ids
        except Exception:
            # No draft is worth the engine.
            self._drafting = False
            logger.exception("spectool drafts no more arguments")

    def _has_room(self) -> bool:
        """Say whether drafts fit into free KV blocks, so that no request has to give up its own."""
        each = 2 + self.num_spec_tokens // self.block_size
        free = self.kv_cache_manager.block_pool.get_num_free_blocks()
        return free >= each * len(self.running)


def _drafts_key(params: SamplingParams | None) -> str | None:
    if params is None or params.sampling_type is SamplingType.RANDOM_SEED:
        # What a seed gives must not hang on when a draft arrives.
        return None
    return drafts_key(params.extra_args)


def _add_utility() -> None:
    """Let the API server reach the scheduler: one attribute more, nothing of vLLM's replaced."""
    from vllm.v1.engine.core import EngineCore

    def take_drafts(engine: Any, orders: list[Any]) -> Any:
        return engine.scheduler.take_drafts(orders)

    setattr(EngineCore, UTILITY, take_drafts)
