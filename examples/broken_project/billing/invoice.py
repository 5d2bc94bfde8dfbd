"""An invoice, or a credit note where its total is negative."""

from dataclasses import dataclass

from billing.discounts import volume_discount
from billing.lines import Line
from billing.money import allocate


@dataclass(frozen=True)
class Invoice:
    """Lines sold together to one customer."""

    lines: tuple[Line, ...]

    def net_cents(self) -> int:
        """Return the sum of the lines, less the volume discount."""
        net = sum(line.net_cents() for line in self.lines)
        return net - volume_discount(net)

    def total_cents(self) -> int:
        """Return what the customer pays, or gets back, with tax."""
        return self.net_cents() + sum(line.tax_cents() for line in self.lines)

    def split_between(self, departments: dict[str, int]) -> dict[str, int]:
        """Split the total between departments by their weights."""
        shares = allocate(self.total_cents(), list(departments.values()))
        return dict(zip(departments, shares, strict=True))
