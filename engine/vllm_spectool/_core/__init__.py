"""Decides: values in, verdicts out. No clock, no I/O, no framework."""
