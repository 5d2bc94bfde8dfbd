"""What decides: keys, contracts, guesses, turns and runs. No clock, no I/O, no framework."""
