"""What a driver keeps of a job."""

import asyncio
import gc
import weakref
from contextvars import copy_context

from langchain_spectool._runtime.driver import AsyncDriver, Job


class _Held:
    """Something that can be referenced weakly."""


async def test_job_that_is_over_is_let_go() -> None:
    """A ticket outlives its job, and holds nothing that the job was made of."""
    held = _Held()
    known, results = weakref.ref(held), list[bool]()

    async def work(what: _Held) -> bool:
        return isinstance(what, _Held)

    prepared = [work(held)]
    job = Job(name="job", timeout_s=5.0, run=None, arun=prepared.pop, done=results.append)
    ticket = AsyncDriver(asyncio.get_running_loop()).start(job, copy_context())
    await asyncio.sleep(1)
    del held, job
    gc.collect()
    assert results == [True]
    assert known() is None
    assert ticket is not None
    assert not ticket.lost
    ticket.cancel()
    assert results == [True]
