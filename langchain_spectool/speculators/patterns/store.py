"""The file of what was learned: `patterns.json`, to be read by people, merged and versioned."""

import json
import os
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from langchain_spectool.errors import SpectoolError
from langchain_spectool.speculators.patterns.model import Model
from langchain_spectool.speculators.patterns.published import published
from langchain_spectool.speculators.patterns.restored import restored

FORMAT = "langchain-spectool patterns"
VERSION = 1
MAX_BYTES = 32_000_000
"""Largest file, in bytes, that is read."""
_NO_TENANT = ""
_NAMELESS = "tenant of empty name"
"""Where the tenant "" lies: beside the others, for among them "" stands for nobody's."""
_OPEN_LEVELS = 6
_WIDE = 100

Models = Mapping[str | None, Model]


class PatternFileError(SpectoolError, ValueError):
    """A file holds no patterns that this version can read. The message says why and what to do."""


class PatternFileWarning(UserWarning):
    """A file of patterns could not be read, and an empty model takes its place."""


def read_patterns(path: str | os.PathLike[str], shared_across: int = 3) -> dict[str | None, Model]:
    """Return the models in a file of patterns, by tenant.

    Raises:
        PatternFileError: It is damaged, no file of patterns, or of a newer version.
        OSError: It cannot be read; `FileNotFoundError` if it is not there.
    """
    path = Path(path)
    if path.stat().st_size > MAX_BYTES:
        raise _error(path, f"is larger than {MAX_BYTES // 1_000_000} MB", _REPLACE)
    try:
        held: object = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _error(path, f"is damaged ({error})", _REPLACE) from error
    tenants = _checked(path, held)
    try:
        return {name: restored(model, shared_across) for name, model in tenants.items()}
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise _error(path, f"is damaged ({error})", _REPLACE) from error


def load_models(
    path: Path, shared_across: int, *, missing_ok: bool = False
) -> dict[str | None, Model]:
    """Return the models in a file; none, and a warning, where it cannot be read.

    With `missing_ok` a file that is not there is no cause for a warning.
    """
    try:
        return read_patterns(path, shared_across)
    except FileNotFoundError:
        if missing_ok:
            return {}
        said = str(_error(path, "is not there", "Check the path, or say `missing_ok=True`."))
    except (PatternFileError, OSError) as error:
        said = str(error)
    warnings.warn(f"{said} Starting with an empty model.", PatternFileWarning, stacklevel=3)
    return {}


def write_patterns(models: Models, path: str | os.PathLike[str]) -> None:
    """Write the models to a file, at once or not at all.

    Raises:
        OSError: It cannot be written; what was there before is still there.
    """
    path = Path(path)
    tenants = {name or _NO_TENANT: published(m) for name, m in models.items() if name != ""}
    content: dict[str, object] = {"format": FORMAT, "version": VERSION, "tenants": tenants}
    if "" in models:
        content[_NAMELESS] = published(models[""])
    text = _laid_out(content) + "\n"
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


_REPLACE = "Delete it or restore a copy, or learn it anew."


def _error(path: Path, fault: str, remedy: str) -> PatternFileError:
    return PatternFileError(f"{str(path)!r} {fault}. {remedy}")


def _checked(path: Path, held: object) -> dict[str | None, object]:
    if not isinstance(held, dict) or cast("dict[str, object]", held).get("format") != FORMAT:
        raise _error(path, "is no file of patterns", "Check the path; it was left as it is.")
    content = cast("dict[str, object]", held)
    version = content.get("version")
    if not isinstance(version, int) or version < 1:
        raise _error(path, f"is damaged (version {version!r})", _REPLACE)
    if version > VERSION:
        remedy = "Update langchain-spectool, or learn the patterns anew."
        raise _error(path, f"is of version {version}; this one reads up to {VERSION}", remedy)
    tenants = content.get("tenants")
    if not isinstance(tenants, dict):
        raise _error(path, "is damaged (no `tenants`)", _REPLACE)
    found = {name or None: model for name, model in cast("dict[str, object]", tenants).items()}
    return found | ({"": content[_NAMELESS]} if _NAMELESS in content else {})


def _laid_out(value: object, level: int = 0) -> str:
    """Return JSON with sorted keys, one line for each entry that fits on one."""
    line = json.dumps(value, sort_keys=True)
    if not isinstance(value, dict) or not value or level == _OPEN_LEVELS:
        return line
    if level > 1 and len(line) + level < _WIDE:
        return line
    entries = [
        f"{' ' * (level + 1)}{json.dumps(key)}: {_laid_out(item, level + 1)}"
        for key, item in sorted(cast("dict[str, object]", value).items())
    ]
    return "{\n" + ",\n".join(entries) + "\n" + " " * level + "}"
