"""Value added tax, in percent, by kind of goods."""

STANDARD = 19
RATES = {"book": 7, "food": 7, "service": STANDARD, "stamp": 0}


def rate_of(kind: str) -> int:
    """Return the rate of a kind of goods; unknown kinds pay the standard rate."""
    return RATES.get(kind, STANDARD)
