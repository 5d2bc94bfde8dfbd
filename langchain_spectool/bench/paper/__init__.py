"""The experiment of arXiv 2512.15834 with the real package."""

from langchain_spectool.bench.paper.command import main

__all__ = ["main"]
