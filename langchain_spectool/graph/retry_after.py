"""Reads from a tool's error that the service behind it wants to be left alone, and for how long."""

import math
import re
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast

USUAL_S = 30.0
"""Seconds to leave a service alone that said no more than that it was too much."""
AT_MOST_S = 3600.0
TOO_MANY = 429
_SAYS_SO = re.compile(
    r"\b(?:http|status|code|error)\W{1,4}(?:(?:status|code)\W{1,4})*429\b"
    r"|\b429 (?:client error|too many)|too many requests|rate.?(?:limit(?:ed)?|exceeded)\b"
    r"|resource.?exhausted|throttl(?:ed|ing)",
    re.IGNORECASE,
)
_NAMED = re.compile(r"retry.?after\W{1,4}(\d+(?:\.\d+)?)", re.IGNORECASE)
MOST_LINKS = 16
"""Errors looked at: the one raised, its causes, and those of a group."""


def retry_after_s(error: BaseException | None) -> float | None:
    """Return the seconds for which the service behind `error` wants no calls; None if it is fine.

    Known are responses with status 429 (httpx, requests, aiohttp and the SDKs built on them),
    their `Retry-After` in seconds or as a date (RFC 9110, section 10.2.3), attributes called
    `retry_after`, and errors that only say so.
    """
    waiting = deque([error])
    for _ in range(MOST_LINKS):
        if not waiting:
            return None
        if (each := waiting.popleft()) is None:
            continue
        seconds = _of(each)
        if seconds is not None:
            return min(seconds, AT_MOST_S)
        waiting.append(each.__cause__ or each.__context__)
        if isinstance(each, BaseExceptionGroup):
            waiting += cast("BaseExceptionGroup[BaseException]", each).exceptions
    return None


def _of(error: BaseException) -> float | None:
    response: object = getattr(error, "response", None)
    stated = _header(error) or _header(response) or getattr(error, "retry_after", None)
    seconds = _seconds(stated)
    if seconds is not None:
        return seconds
    statuses = (
        getattr(holder, name, None)
        for holder in (error, response)
        for name in ("status_code", "status", "code")
    )
    text = str(error)
    if TOO_MANY not in statuses and not _SAYS_SO.search(text):
        return None
    named = _NAMED.search(text)
    return USUAL_S if named is None else float(named[1])


def _header(holder: object) -> object:
    headers: object = getattr(holder, "headers", None)
    if not isinstance(headers, Mapping):
        return None
    pairs = cast("Mapping[Any, Any]", headers).items()
    return next((value for name, value in pairs if str(name).lower() == "retry-after"), None)


def _seconds(stated: object) -> float | None:
    if isinstance(stated, int | float) and not isinstance(stated, bool):
        return float(stated) if 0 <= stated < math.inf else None
    if not isinstance(stated, str):
        return None
    try:
        seconds = float(stated)
    except ValueError:
        return _until(stated)
    return seconds if 0 <= seconds < math.inf else None


def _until(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    now = datetime.now(UTC) if moment.tzinfo is not None else datetime.now(UTC).replace(tzinfo=None)
    return max(0.0, (moment - now).total_seconds())
