"""Recorded runs, read from whatever wrote them down."""
