"""Reads vLLM's configuration."""

from argparse import Namespace
from collections.abc import Collection
from typing import Any

from vllm_spectool.plugin.kv_room import KvRoom
from vllm_spectool.plugin.support import ServerFacts


def facts_of(config: Any, args: Namespace) -> ServerFacts:
    """Return what decides whether responses can go on in place."""
    parallel, model = config.parallel_config, config.model_config
    return ServerFacts(
        tool_parser=bool(args.enable_auto_tool_choice and args.tool_call_parser),
        api_servers=parallel._api_process_count,  # noqa: SLF001
        speculative_decoding=config.speculative_config is not None,
        pipeline_parallel=parallel.pipeline_parallel_size,
        kv_connector=config.kv_transfer_config is not None,
        encoder_decoder=model.is_encoder_decoder,
        keeps_state=model.is_hybrid or model.is_attention_free,
        statistics=not args.disable_log_stats,
    )


def kv_room(config: Any) -> KvRoom:
    """Return the room in one engine's KV cache."""
    tokens = config.kv_cache_size_tokens
    return KvRoom(tokens, config.effective_attention_block_size or config.block_size)


def server_keys(args: Namespace) -> list[str]:
    """Return the keys that vLLM's own routes ask for; none where they are open."""
    from vllm import envs

    return [key for key in (args.api_key or [envs.VLLM_API_KEY]) if key]


def special_tokens(tokenizer: Any) -> Collection[str]:
    """Return the texts that the tokenizer reads as one token each."""
    added = getattr(tokenizer, "get_added_vocab", dict)()
    return {*added, *getattr(tokenizer, "all_special_tokens", ())}
