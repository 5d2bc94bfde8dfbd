"""Has vLLM schedule asynchronously on a CPU, for the proof alone: `PYTHONPATH` names this folder.

vLLM forces asynchronous scheduling off there, since a CPU has no streams to overlap. With streams
that do nothing, its scheduler and its model runner go the asynchronous way all the same; nothing
overlaps, so nothing may be timed.
"""

# ruff: noqa: ANN401, PLC0415 - vLLM's objects have no types to name, and it is imported late

import contextlib
import logging
from typing import Any

logger = logging.getLogger("vllm.spectool_async_stub")
MARK = "scheduler class:"


class Stream:
    """A stream, or an event on it, that is always done."""

    def __init__(self, *_: Any, **__: Any) -> None:
        import torch

        self.device = torch.device("cpu")

    def query(self) -> bool:
        """Say that all is done."""
        return True

    def _nothing(self, *_: Any, **__: Any) -> None: ...

    wait = wait_event = wait_stream = record = record_event = synchronize = _nothing


def register() -> None:
    """Called by vLLM in each of its processes."""
    _stub_streams()
    _free_choice()
    _tell_class()


def _stub_streams() -> None:
    import torch

    current = Stream()
    torch.cuda.Stream = torch.cuda.Event = torch.Event = Stream
    torch.cuda.current_stream = lambda *_: current
    torch.cuda.stream = lambda *_: contextlib.nullcontext()


def _free_choice() -> None:
    """Keep what vLLM has chosen before the CPU's platform overrules it."""
    from vllm.platforms import current_platform

    platform = type(current_platform)
    if not platform.is_cpu(current_platform) or hasattr(platform, "spectool_async_stub"):
        return
    platform.spectool_async_stub = True
    forced = platform.check_and_update_config.__func__

    def free(cls: Any, config: Any) -> None:
        chosen = config.scheduler_config.async_scheduling
        forced(cls, config)
        config.scheduler_config.async_scheduling = chosen

    platform.check_and_update_config = classmethod(free)


def _tell_class() -> None:
    from vllm.config.scheduler import SchedulerConfig

    choose = SchedulerConfig.get_scheduler_cls
    if hasattr(choose, "spectool_async_stub"):
        return

    def told(self: Any) -> type:
        chosen = choose(self)
        name = f"{chosen.__module__}.{chosen.__qualname__}"
        logger.info("%s %s async=%s", MARK, name, bool(self.async_scheduling))
        return chosen

    told.spectool_async_stub = True
    SchedulerConfig.get_scheduler_cls = told
