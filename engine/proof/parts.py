"""The parts of the proof by name; each is asked, and dated, on its own."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import asynchronous
import sampling
import turns
from serving import HERE, HOME, PYTHON
from styles import STYLES

TEMPLATES = "SPECTOOL_TEMPLATES"
REAL_TEMPLATES = "real_templates"


def real_templates() -> dict[str, Any] | None:
    """Look at the templates of `SPECTOOL_TEMPLATES`; None if it names no folder."""
    folder = os.environ.get(TEMPLATES)
    if not folder:
        return None
    command = [PYTHON, HERE / "templates_check.py", HOME / "smollm2", folder]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return {"verdicts": json.loads(done.stdout), "proved": True}


PARTS: Mapping[str, Callable[[], dict[str, Any] | None]] = {
    "smollm2": turns.smollm2,
    **{style.name: partial(turns.tiny, style) for style in STYLES},
    "asynchronous": asynchronous.proof,
    "sampling": sampling.proof,
    REAL_TEMPLATES: real_templates,
}
