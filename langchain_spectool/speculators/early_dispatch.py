"""`EarlyDispatch`: the main model's own calls, started while the rest still streams."""

from langchain_spectool._core.assembly import CallAssembler
from langchain_spectool._core.guess import TurnRequest


class EarlyDispatch:
    """Starts a call of the main model's stream once it is closed.

    Passive unless forced: it sees chunks only when the caller streams (`stream`, `astream`,
    `astream_events`) or the model has `streaming=True`. `force=True` asks the model to stream
    even for `invoke` and `ainvoke`; message ids, usage metadata and the provider's behaviour
    are then those of a streamed answer.

    A call that is the last thing its turn writes closes only as the turn ends, so it gains
    nothing; a call followed by text or by other calls does.
    """

    name = "early_dispatch"
    free = True

    def __init__(self, *, force: bool = False) -> None:
        """Listen, and with `force` also make the model speak."""
        self.force = force

    def listen(self, request: TurnRequest) -> CallAssembler:  # noqa: ARG002 - the port
        """Return a fresh assembler."""
        return CallAssembler()
