"""Hand-made tasks."""

from langchain_spectool.bench.gold import Batch
from langchain_spectool.bench.paper.workload import PaperTask, ToolSpec

FIND = ToolSpec(name="find", description="Find it.", arguments=("what",))


def task(*sizes: int, name: str = "t") -> PaperTask:
    """Return a task whose turns make so many calls each, all different."""
    batches: list[Batch] = [
        tuple(("find", {"what": f"{turn}-{place}"}) for place in range(size))
        for turn, size in enumerate(sizes)
    ]
    return PaperTask(
        task_id=name,
        text="Where?",
        batches=batches,
        outputs=[[f"at {args['what']}" for _, args in batch] for batch in batches],
        tools={"find": FIND},
    )
