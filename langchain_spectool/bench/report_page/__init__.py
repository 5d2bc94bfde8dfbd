"""The report: one page a person can read, from measurements and from an event log."""

from langchain_spectool.bench.report_page.page import main, render, write

__all__ = ["main", "render", "write"]
