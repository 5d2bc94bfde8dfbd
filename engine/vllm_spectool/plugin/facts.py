"""Reads vLLM's configuration."""

from argparse import Namespace
from collections.abc import Collection
from typing import Any

from vllm_spectool.plugin.kv_room import KvRoom
from vllm_spectool.plugin.support import PROPOSER, SCHEDULER, ServerFacts


def facts_of(config: Any, args: Namespace) -> ServerFacts:
    """Return what decides whether responses can go on in place."""
    parallel, model = config.parallel_config, config.model_config
    speculative, scheduling = config.speculative_config, config.scheduler_config
    return ServerFacts(
        tool_parser=bool(args.enable_auto_tool_choice and args.tool_call_parser),
        api_servers=parallel._api_process_count,  # noqa: SLF001
        speculative_decoding=speculative is not None,
        drafting_scheduler=scheduling.scheduler_cls == SCHEDULER,
        own_proposer=speculative is not None and speculative.model == PROPOSER,
        asynchronous=bool(scheduling.async_scheduling),
        data_parallel=parallel.data_parallel_size,
        pipeline_parallel=parallel.pipeline_parallel_size,
        kv_connector=config.kv_transfer_config is not None,
        encoder_decoder=model.is_encoder_decoder,
        keeps_state=model.is_hybrid or model.is_attention_free,
        statistics=not args.disable_log_stats,
    )


def kv_room(config: Any) -> KvRoom:
    """Return the room in one engine's KV cache."""
    cache = config.cache_config
    return KvRoom(
        cache.kv_cache_size_tokens,
        cache.effective_attention_block_size or cache.block_size,
        ahead=1 + config.num_speculative_tokens,
    )


def server_keys(args: Namespace) -> list[str]:
    """Return the keys that vLLM's own routes ask for; none where they are open."""
    from vllm import envs

    return [key for key in (args.api_key or [envs.VLLM_API_KEY]) if key]


def special_tokens(tokenizer: Any) -> Collection[str]:
    """Return the texts that the tokenizer reads as one token each."""
    added: Collection[str] = getattr(tokenizer, "get_added_vocab", dict[str, int])()
    named: Collection[str] = getattr(tokenizer, "all_special_tokens", ())
    return {*added, *named}
