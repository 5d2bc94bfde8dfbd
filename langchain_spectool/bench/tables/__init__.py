"""Writes the measured tables and sentences of the documents from the committed results."""

from langchain_spectool.bench.tables.command import main

__all__ = ["main"]
