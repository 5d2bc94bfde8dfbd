"""The sources of guesses."""
