"""The client of an engine with a tool cache, such as vLLM with `vllm-spectool`."""

from langchain_spectool.engines.breaker import Breaker
from langchain_spectool.engines.client import ToolCacheClient
from langchain_spectool.engines.entries import Entry
from langchain_spectool.engines.transport import ToolCacheTransport

__all__ = ["Breaker", "Entry", "ToolCacheClient", "ToolCacheTransport"]
