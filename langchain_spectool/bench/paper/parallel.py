"""Work that is shared out to processes."""

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Final, TypeVar

WORKERS: Final = min(2, os.cpu_count() or 1)

_Result = TypeVar("_Result")
Task = tuple[Callable[..., _Result], tuple[object, ...]]


@contextmanager
def _pool(workers: int) -> Generator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def run_all(
    tasks: Sequence[Task[_Result]], advance: Callable[[], None], workers: int = WORKERS
) -> list[_Result]:
    """Return the results of `tasks`, in their order; without `workers`, in this process."""
    if not workers:
        return [_here(task, advance) for task in tasks]
    with _pool(workers) as pool:
        futures = [pool.submit(function, *args) for function, args in tasks]
        for future in as_completed(futures):
            future.result()
            advance()
        return [future.result() for future in futures]


def _here(task: Task[_Result], advance: Callable[[], None]) -> _Result:
    function, args = task
    result = function(*args)
    advance()
    return result
