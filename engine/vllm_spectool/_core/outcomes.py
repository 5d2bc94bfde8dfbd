"""How a turn of an opted-in request ends: the verdict, and the counter's label."""

from typing import Literal, get_args

Decline = Literal[
    "answered",
    "unfinished",
    "malformed_call",
    "no_entry",
    "partial",
    "not_text",
    "special_tokens",
    "template_drift",
    "unrenderable",
    "context_full",
    "max_turns",
    "kv_full",
    "preempted",
    "seed",
    "stop",
    "n",
    "prompt_logprobs",
    "ignore_eos",
    "beam_search",
    "grammar",
    "multimodal",
    "unsupported",
]
"""Why a turn is not continued in place. The client gets it as a plain answer.

- `answered`: the turn calls no tool, so there is nothing to continue.
- `unfinished`: the turn ended at `max_tokens`, or was aborted.
- `malformed_call`: a call has no arguments that could be compared.
- `no_entry`, `partial`: no call, or not every call, of the turn has an output.
- `not_text`: an output holds an image or another block that is no text.
- `special_tokens`: an output holds the text of a special token, which a round trip makes one.
- `template_drift`: the chat template would write the conversation otherwise than it stands.
- `unrenderable`: the template raises.
- `context_full`: the next turn would not fit into the model's context.
- `max_turns`: the response has as many turns as the server allows.
- `kv_full`: with the next turn, responses could wait for one another's KV blocks.
- `preempted`: the turn lost its KV blocks on the way.
- `seed` and what follows: the request asks for something that a continuation cannot keep.
"""

Other = Literal["continued", "continued_drifted", "malformed_key"]
"""What else is counted.

- `continued`: the turn went on, and stands as a round trip would have it.
- `continued_drifted`: it went on where the template would write otherwise what stands.
- `malformed_key`: the request's `spectool_key` is too short or no string; it is not opted in.
"""

Outcome = Other | Decline

DECLINES: tuple[Decline, ...] = get_args(Decline)
OUTCOMES: tuple[Outcome, ...] = (*get_args(Other), *DECLINES)
