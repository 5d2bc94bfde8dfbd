"""What this package raises on purpose.

```text
EngineError
├── RejectedError           an HTTP request is refused: it carries the status and the answer's body
│   ├── MalformedError      400, with the field named
│   ├── UnauthorizedError   401, no key of the server was sent
│   ├── TooLargeError       413, the body or an entry is larger than the server allows
│   └── UnableError         501, the cache cannot work in this server, with the reason
└── RenderingError          a chat template or tokenizer cannot write a conversation
```
"""

from typing import ClassVar


class EngineError(Exception):
    """Catch this to catch everything that this package raises on purpose."""


class RejectedError(EngineError):
    """A request to the tool cache is refused; the server goes on as before."""

    status: ClassVar[int] = 400
    kind: ClassVar[str] = "BadRequestError"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        """Path of the field at fault, such as `[1].keep_alive`; None if there is none."""

    @property
    def body(self) -> dict[str, object]:
        """What the client reads, in the shape of vLLM's own errors."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.field,
                "code": self.status,
            }
        }


class MalformedError(RejectedError):
    """A field is missing, of the wrong type or out of its range. `field` names it."""


class UnauthorizedError(RejectedError):
    """The request carries none of the server's keys. The answer is the one vLLM gives."""

    status: ClassVar[int] = 401

    @property
    def body(self) -> dict[str, object]:
        """What vLLM's own routes answer."""
        return {"error": self.message}


class TooLargeError(RejectedError):
    """The body or one entry is larger than the server allows. The message names both sizes."""

    status: ClassVar[int] = 413
    kind: ClassVar[str] = "RequestEntityTooLargeError"


class UnableError(RejectedError):
    """The tool cache cannot work in this server; the message says why."""

    status: ClassVar[int] = 501
    kind: ClassVar[str] = "NotImplementedError"


class RenderingError(EngineError):
    """A conversation cannot be written as the model would read it: the call is a plain miss."""
