"""Invoices and credit notes."""

import unittest

from billing.invoice import Invoice
from billing.lines import Line
from billing.report import report

DEPARTMENTS = {"lab": 1, "office": 1, "shop": 1}


class InvoiceTest(unittest.TestCase):
    """What customers see."""

    def test_a_large_invoice_gets_its_discount(self) -> None:
        """1000.00 of books cost 900.00 and 70.00 of tax."""
        invoice = Invoice((Line("books", 100, 1000, "book"),))
        self.assertEqual(invoice.total_cents(), 97_000)

    def test_a_report_names_every_department(self) -> None:
        """1.00 in three parts: the odd cent goes to the first department."""
        invoice = Invoice((Line("repair", 1, 84),))
        self.assertIn("lab: 0.34", report(invoice, DEPARTMENTS))

    def test_a_credit_note_is_split_to_the_cent(self) -> None:
        """Nothing of a refund may get lost between departments."""
        credit = Invoice((Line("refund", 1, -841),))
        self.assertEqual(sum(credit.split_between(DEPARTMENTS).values()), credit.total_cents())
