"""Which scheduler vLLM chooses where it may schedule asynchronously, and whether O3 holds there.

On a CPU it may not: `stubs` lets it, over streams that do nothing. That exercises the scheduler and
the model runner's bookkeeping, on no GPU; nothing of it is timed.
"""

from pathlib import Path
from typing import Any

import models
from arms import DRAFTS, PLAIN
from serving import DRAFTING, serving
from styles import STYLES, tiny_questions
from turns import asked, verdict

MARK = "scheduler class:"
ASYNC = "vllm.v1.core.sched.async_scheduler.AsyncScheduler"
DRAFTER = "vllm_spectool.plugin.scheduler.DraftingScheduler"


def proof() -> dict[str, Any]:
    """Without drafts it has to be vLLM's asynchronous one; with them ours, which is synchronous."""
    style = STYLES[0]
    training = models.trained(style.model)
    questions = [*tiny_questions(style)]
    flags = models.flags(style.name, style.parser)
    terms = {"tiny": True, "asynchronous": True}
    with serving(models.folder(style.model), *flags, **terms) as running:
        rows = asked(running.client, questions, PLAIN)
        plain = chosen(running.log)
    with serving(models.folder(style.model), *flags, *DRAFTING, **terms) as running:
        # One of each kind is enough: it is the scheduler of the other parts.
        few = {question.kind: question for question in questions}
        rows += asked(running.client, [*few.values()], DRAFTS)
        drafting = chosen(running.log)
    found = verdict(rows)
    wanted = ((plain, f"{ASYNC} async=True"), (drafting, f"{DRAFTER} async=False"))
    wrong = [f"chosen: {given}, not {right}" for given, right in wanted if given != [right]]
    return {
        "training": training,
        "without_drafts": plain,
        "with_drafts": drafting,
        **found,
        "amiss": [*found["amiss"], *wrong],
        "proved": found["proved"] and not wrong,
    }


def chosen(log: Path) -> list[str]:
    """Return what a server's log says of the class, each once."""
    lines = log.read_text("utf-8", errors="replace").splitlines()
    return list(dict.fromkeys(line.partition(MARK)[2].strip() for line in lines if MARK in line))
