"""The analytic model of what speculation saves."""
