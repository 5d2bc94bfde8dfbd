"""An invoice as text."""

from billing.invoice import Invoice
from billing.money import euros


def report(invoice: Invoice, departments: dict[str, int]) -> str:
    """Return one row for each line, the total, and what each department pays."""
    rows = [f"{line.title}: {euros(line.net_cents())}" for line in invoice.lines]
    rows.append(f"total: {euros(invoice.total_cents())}")
    shares = invoice.split_between(departments)
    rows += [f"  {department}: {euros(share)}" for department, share in shares.items()]
    return "\n".join(rows)
