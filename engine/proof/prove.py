"""Proves on a real vLLM that what the tool cache adds changes nothing a client reads.

The parts are written into one file, each with its own date and versions, so that one can be asked
again without the others. Needs what `set_up_vllm.sh` makes.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from typing import Any

from langchain_spectool.bench.engine.bars import SIGNIFICANT, exceeds
from langchain_spectool.bench.engine.server import packages
from langchain_spectool.bench.report import machine
from parts import PARTS, REAL_TEMPLATES, TEMPLATES
from serving import FLAGS, HERE, PYTHON

NEVER = {
    "GPU": "see gpu_check.sh",
    "asynchronous scheduling on streams that do something": "vLLM forces it off on a CPU",
}


def dated(name: str) -> dict[str, Any] | None:
    """Ask one part; return what was found, with when and on what. None if it cannot be asked."""
    began_s, state = time.perf_counter(), plugin()
    try:
        found = PARTS[name]()
    except Exception as error:  # noqa: BLE001 - whatever it was, the other parts are asked
        found = {"amiss": [f"broke off: {error!r}"], "proved": False}
    if found is None:
        return None
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "wall_s": round(time.perf_counter() - began_s, 1),
        "machine": machine(),
        "python": platform.python_version(),
        "versions": dict(packages(PYTHON)),
        "plugin": state,
    }
    return {**found, **about}


def plugin() -> str:
    """Return a digest of the plugin's sources: parts may be of different states of it."""
    sources = sorted((HERE.parent / "vllm_spectool").rglob("*.py"))
    return sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:16]


def whole(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the result that parts make; machine and versions are those of the latest."""
    ordered = {name: parts[name] for name in PARTS if name in parts}
    latest = max(ordered.values(), key=itemgetter("date"))
    arms = divergences(ordered)
    sums = summed(arms)
    not_run = missing(ordered)
    good = all(each["proved"] for each in (*ordered.values(), *arms))
    return {
        **{name: latest[name] for name in ("date", "machine", "python", "versions")},
        "wall_s": round(sum(part["wall_s"] for part in ordered.values()), 1),
        "settings": {"dtype": "float32", "flags": [*FLAGS]},
        "summary": [row for name, part in ordered.items() for row in kinds(name, part)],
        "arms": arms,
        **{name: sums[name] for name in ("asked", "aa_differ", "differ", "p")},
        "amiss": [
            {"part": name, **(each if isinstance(each, dict) else {"what": each})}
            for name, part in ordered.items()
            for each in part.get("amiss", ())
        ],
        "one_plugin": len({part["plugin"] for part in ordered.values()}) == 1,
        "not_run": {**not_run, **NEVER},
        "proved": good and not_run.keys() <= {REAL_TEMPLATES},
        "parts": ordered,
    }


def missing(parts: Mapping[str, object]) -> dict[str, str]:
    """Say which parts were not asked, and why."""
    reasons = {REAL_TEMPLATES: f"{TEMPLATES} names no folder"}
    return {name: reasons.get(name, "not asked") for name in PARTS if name not in parts}


def divergences(parts: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Say of each arm, over all parts, how often it differs, and whether that is too often."""
    arms = [arm for part in parts.values() for arm in part.get("arms", ())]
    found: list[dict[str, Any]] = []
    for name in dict.fromkeys(arm["arm"] for arm in arms):
        sums = summed([arm for arm in arms if arm["arm"] == name])
        found.append({"arm": name, **sums, "proved": sums["p"] >= SIGNIFICANT})
    return found


def kinds(name: str, part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Sum up a part by kind of question, over its arms."""
    rows = part.get("kinds", ())
    return [
        {"style": name, "kind": kind, **summed([row for row in rows if row["kind"] == kind])}
        for kind in dict.fromkeys(row["kind"] for row in rows)
    ]


def summed(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up; `p` is Fisher's exact test, one-sided: more that differ than A/A."""
    sums = {
        field: sum(row[field] for row in rows)
        for field in ("asked", "turns", "continued", "aa_differ", "differ")
    }
    return {**sums, "p": round(exceeds(sums["differ"], sums["aa_differ"], sums["asked"]), 4)}


def known(path: Path) -> dict[str, Any]:
    """Return the parts that a file has."""
    if not path.exists():
        return {}
    return json.loads(path.read_text("utf-8"))["parts"]


def asked(names: Sequence[str], path: Path) -> dict[str, Any]:
    """Ask parts one after another, and write the result after each; return it."""
    parts = known(path)
    for name in names:
        found = dated(name)
        if found is None:
            continue
        parts[name] = found
        path.write_text(f"{json.dumps(whole(parts), indent=1)}\n", "utf-8")
        print(f"{name}: {'proved' if found['proved'] else 'NOT PROVED'}, {found['wall_s']:.0f} s")
        sys.stdout.flush()
    if not parts:
        sys.exit(f"nothing was asked: {TEMPLATES} names no folder")
    return whole(parts)


def main() -> int:
    """Prove it, and write what was found; exit status 1 if it does not hold, or not all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "result.json", metavar="FILE")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help="ask these again")
    given = parser.parse_args()
    if given.only is None:
        given.out.unlink(missing_ok=True)
    found = asked(given.only or [*PARTS], given.out)
    for arm in found["arms"]:
        print(" ".join(f"{name} {value}" for name, value in arm.items()))
    for each in found["amiss"]:
        print(f"amiss: {each}")
    lacking = ", ".join(name for name in PARTS if name in found["not_run"])
    print(f"{'proved' if found['proved'] else 'NOT PROVED'}; not asked: {lacking or 'nothing'}")
    print(f"the whole of it is in {given.out}")
    return 0 if found["proved"] else 1


if __name__ == "__main__":
    sys.exit(main())
