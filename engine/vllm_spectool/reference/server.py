"""Runs the reference engine on a socket: in the foreground, or beside a test."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Generator

import uvicorn

from vllm_spectool.reference.app import build_app
from vllm_spectool.reference.service import Reference


def config(service: Reference, **options: object) -> uvicorn.Config:
    """Return uvicorn's settings: the plain loop and parser, so that all machines do the same."""
    return uvicorn.Config(
        build_app(service),
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_level="warning",
        **options,  # pyright: ignore[reportArgumentType]
    )


@contextlib.contextmanager
def serving(service: Reference, *, host: str = "127.0.0.1", port: int = 0) -> Generator[str]:
    """Serve in a thread of its own while the block runs; yield the base URL, without `/v1`.

    Leaving ends the server, with it every open connection, and the thread.
    """
    with socket.create_server((host, port)) as listening:
        server = uvicorn.Server(config(service, timeout_graceful_shutdown=1))
        thread = threading.Thread(
            target=asyncio.run, args=(server.serve([listening]),), name="reference engine"
        )
        thread.start()
        try:
            yield f"http://{host}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
