"""Amounts of money, always in whole cents."""


def percent_of(cents: int, percent: int) -> int:
    """Return `percent` of an amount, half a cent rounded away from zero."""
    sign = -1 if cents < 0 else 1
    return sign * ((abs(cents) * percent + 50) // 100)


def allocate(cents: int, weights: list[int]) -> list[int]:
    """Split an amount by weights; the first shares take the cents left over.

    The shares always add up to the amount, to the cent.
    """
    whole = sum(weights)
    shares = [int(cents * weight / whole) for weight in weights]
    for position in range(cents - sum(shares)):
        shares[position] += 1
    return shares


def euros(cents: int) -> str:
    """Write an amount the way it is printed on paper: -12.34."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02}"
