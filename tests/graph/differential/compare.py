"""Runs every arm of an agent and says where one differs from stock."""

from collections.abc import Sequence

from tests.graph.differential.build import Arm
from tests.graph.differential.observe import COMPARED, Seen, observe
from tests.graph.differential.plain import difference
from tests.graph.differential.specs import AgentSpec

ARMS: tuple[Arm, ...] = ("off", "shadow", "on")


def assert_same(spec: AgentSpec, arms: Sequence[Arm] = ARMS) -> Seen:
    """Run `spec` stock and in each of `arms`, and return what the last one showed.

    Raises:
        AssertionError: An arm differs, or something of ours failed.
    """
    stock = here = observe(spec, "stock")
    for arm in arms:
        here = observe(spec, arm)
        if here.errors:
            raise AssertionError(f"{arm}: {'; '.join(here.errors)}")
        for name in COMPARED:
            found = difference(getattr(stock, name), getattr(here, name), name)
            if found is not None:
                raise AssertionError(f"{arm} differs from stock at {found}\nin {spec}")
    return here
