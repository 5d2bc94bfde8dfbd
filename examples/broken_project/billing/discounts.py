"""Discounts on a whole invoice."""

from billing.money import percent_of

STEPS = ((100_000, 10), (50_000, 5))


def volume_discount(net_cents: int) -> int:
    """Return the cents taken off large invoices: 5 % from 500, 10 % from 1000."""
    for threshold, percent in STEPS:
        if net_cents >= threshold:
            return percent_of(net_cents, percent)
    return 0
