"""One line of an invoice."""

from dataclasses import dataclass

from billing.money import percent_of
from billing.rates import rate_of


@dataclass(frozen=True)
class Line:
    """Some units of one thing; a negative price is a refund."""

    title: str
    units: int
    price_cents: int
    kind: str = "service"

    def net_cents(self) -> int:
        """Return what the line costs before tax."""
        return self.units * self.price_cents

    def tax_cents(self) -> int:
        """Return the tax on the line."""
        return percent_of(self.net_cents(), rate_of(self.kind))
