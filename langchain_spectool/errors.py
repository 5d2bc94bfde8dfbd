"""What this package raises on purpose.

```text
SpectoolError
├── ContractError      (TypeError)            a tool cannot be declared like this: fix the code
├── NotAvailableYet    (NotImplementedError)  a known field or feature of later work: leave it out
├── PatternFileError   (ValueError)           a file of patterns is damaged, foreign or too new:
│                                             the message names it and what to do
└── TaintedError                              an early run touched what cannot be replayed:
                                              its result is dropped, the call runs for real
```

A value outside its range is a plain `ValueError`. A failed guess raises nothing: it is a miss.
"""


class SpectoolError(Exception):
    """Catch this to catch everything that this package raises on purpose."""


class ContractError(SpectoolError, TypeError):
    """A tool cannot be declared like this. The message names the tool, the reason and the fix."""


class NotAvailableYet(SpectoolError, NotImplementedError):  # noqa: N818 - it reports no fault
    """A field or feature has its name already and its work not yet. Leave it out until then."""


class TaintedError(SpectoolError):
    """An early run touched something that cannot be replayed.

    Let it propagate: it ends an early run that nobody sees, and the call runs for real.
    """
