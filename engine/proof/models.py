"""The tiny models: trained once, and anew only if what they are made of has changed."""

import json
import subprocess
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from serving import HERE, HOME, PYTHON

PINS = "pins.json"
DICE = "dice"


def folder(style: str) -> Path:
    """Return where the tiny model of a style is."""
    return HOME / f"tiny-{style}"


def template(style: str) -> Path:
    """Return the template of a style; the model that throws dice writes as hermes does."""
    return HERE / "templates" / f"{'hermes' if style == DICE else style}.jinja"


def flags(style: str, parser: str) -> list[str]:
    """Return what a server of a style is given."""
    return ["--tool-call-parser", parser, "--chat-template", str(template(style))]


def trained(style: str) -> dict[str, Any]:
    """Have the tiny model of a style; return how its training went, now or before.

    Raises:
        subprocess.CalledProcessError: It did not learn all in time.
    """
    pins, kept = pinned(style), folder(style) / PINS
    if kept.exists() and (known := json.loads(kept.read_text("utf-8")))["pins"] == pins:
        return known["training"]
    command = [PYTHON, HERE / "train.py", HOME / "smollm2", style, folder(style)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    now = datetime.now(UTC).isoformat(timespec="seconds")
    training = {**json.loads(done.stdout.splitlines()[-1]), "date": now}
    kept.write_text(json.dumps({"pins": pins, "training": training}), "utf-8")
    return training


def pinned(style: str) -> str:
    """Return a digest of all that makes the tiny model of a style what it is.

    That is: its trainer with the seed, its conversations, its template, the tokenizer, and the
    versions of what trains it.
    """
    parts = (
        *(HERE / "train.py", HERE / "conversations.py", template(style)),
        *(HOME / "smollm2" / "pins", HOME / "venv" / "pins"),
    )
    return sha256(b"\0".join(part.read_bytes() for part in parts)).hexdigest()
