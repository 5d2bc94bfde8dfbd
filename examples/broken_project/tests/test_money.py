"""Amounts, in cents."""

import unittest

from billing.money import allocate, euros, percent_of


class MoneyTest(unittest.TestCase):
    """The arithmetic everything else relies on."""

    def test_a_percentage_rounds_away_from_zero(self) -> None:
        """Half a cent goes up, and down below zero."""
        self.assertEqual([percent_of(50, 19), percent_of(-50, 19)], [10, -10])

    def test_the_first_shares_take_the_rest(self) -> None:
        """100 cents in three parts are 34, 33 and 33."""
        self.assertEqual(allocate(100, [1, 1, 1]), [34, 33, 33])

    def test_amounts_are_printed_with_two_digits(self) -> None:
        """Cents keep their zero."""
        self.assertEqual([euros(1205), euros(-7)], ["12.05", "-0.07"])
