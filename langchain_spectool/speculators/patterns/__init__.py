"""Predicting an agent's next calls from what it did before, without a model."""
