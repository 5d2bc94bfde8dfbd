"""Errors that say how long a service wants to be left alone, however they say it."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from langchain_spectool.graph.retry_after import AT_MOST_S, MOST_LINKS, USUAL_S, retry_after_s


class Failed(Exception):  # noqa: N818 - stands for errors of many libraries
    """An error with whatever attributes a library gives its own."""

    def __init__(self, text: str = "failed", **attributes: Any) -> None:
        super().__init__(text)
        self.__dict__.update(attributes)


def answered(status: int, **headers: str) -> httpx.HTTPStatusError:
    """Return httpx's own error for a response."""
    request = httpx.Request("GET", "https://example.com")
    response = httpx.Response(status, headers=headers, request=request)
    try:
        response.raise_for_status()
    except httpx.HTTPStatusError as error:
        return error
    pytest.fail("no error")


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (answered(429, **{"Retry-After": "7"}), 7),
        (answered(503, **{"retry-after": "2.5"}), 2.5),
        (answered(429), USUAL_S),
        (Failed(headers={"RETRY-AFTER": "3"}), 3),
        (Failed(response=SimpleNamespace(headers={"Retry-After": 4})), 4),
        (Failed(retry_after=1.5), 1.5),
        (Failed(retry_after=0), 0),
        (Failed(status_code=429), USUAL_S),
        (Failed(status=429), USUAL_S),
        (Failed(code=HTTPStatus.TOO_MANY_REQUESTS), USUAL_S),
        (Failed(response=SimpleNamespace(status_code=429)), USUAL_S),
        (Failed(retry_after=10**9), AT_MOST_S),
    ],
)
def test_libraries_say_it_in_attributes(error: BaseException, seconds: float) -> None:
    """Responses and errors of httpx and its kin, in seconds, up to an hour."""
    assert retry_after_s(error) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Error code: 429 - {'error': 'slow down'}", USUAL_S),
        ("HTTP 429", USUAL_S),
        ("status code 429", USUAL_S),
        ("HTTP status code: 429", USUAL_S),
        ("429 Client Error: Too Many Requests for url", USUAL_S),
        ("too many requests, retry after 12 seconds", 12),
        ("Rate limit reached; retry-after: 1.5", 1.5),
        ("rate_limited", USUAL_S),
        ("RESOURCE_EXHAUSTED: quota", USUAL_S),
        ("An error occurred (ThrottlingException): Rate exceeded", USUAL_S),
    ],
)
def test_some_errors_only_say_so(text: str, seconds: float) -> None:
    """The usual words, with a number of seconds if there is one."""
    assert retry_after_s(Failed(text)) == seconds


@pytest.mark.parametrize(
    "error",
    [
        None,
        Failed("order 429 was not found"),
        Failed("error 4290"),
        Failed("chapter 12, page 429"),
        Failed("retry after 5 s"),
        Failed(status_code=500),
        Failed(response=None),
        Failed(headers=["Retry-After"]),
        Failed(headers={"Server": "x"}),
        answered(500),
    ],
)
def test_other_errors_say_nothing(error: BaseException | None) -> None:
    """A number that happens to be 429 is no status."""
    assert retry_after_s(error) is None


@pytest.mark.parametrize(
    "stated", [True, -1, "-1", "nan", "inf", float("inf"), "soon", "Wed, 99 Foo 2020", None, [1]]
)
def test_nonsense_is_as_good_as_nothing(stated: Any) -> None:
    """A service that wants to be left alone for no sensible time is left alone as usual."""
    assert retry_after_s(Failed(retry_after=stated)) is None
    assert retry_after_s(Failed(retry_after=stated, status=429)) == USUAL_S


@pytest.mark.parametrize("zone", ["GMT", "-0000"])
def test_a_date_is_counted_from_now(zone: str) -> None:
    """RFC 9110 allows dates; one that has passed means at once."""
    for ahead_s, low, high in ((100, 90, 100), (-100, 0, 0)):
        moment = datetime.now(UTC) + timedelta(seconds=ahead_s)
        date = format_datetime(moment).replace("+0000", zone)
        seconds = retry_after_s(Failed(headers={"Retry-After": date}))
        assert seconds is not None
        assert low <= seconds <= high


def test_a_date_beyond_all_dates_is_none() -> None:
    """It can be no number of seconds."""
    date = f"Wed, 21 Oct {10**20} 07:28:00 GMT"
    assert retry_after_s(Failed(headers={"Retry-After": date})) is None


def chained(length: int) -> Exception:
    """Return an error with a 429 as its `length`-th cause."""
    error: Exception = Failed(retry_after=5)
    for number in range(length):
        outer = Failed(str(number))
        if number % 2:
            outer.__cause__ = error
        else:
            outer.__context__ = error
        error = outer
    return error


def test_a_cause_counts_as_the_error_itself() -> None:
    """Tools wrap what their clients raise; but not without end."""
    assert retry_after_s(chained(3)) == 5
    assert retry_after_s(chained(MOST_LINKS)) is None


def test_a_circle_of_causes_ends() -> None:
    """Two errors may each have the other as context."""
    one, other = Failed("one"), Failed("other")
    one.__context__, other.__context__ = other, one
    assert retry_after_s(one) is None


def test_one_of_a_group_is_enough() -> None:
    """Task groups raise several errors at once."""
    group = ExceptionGroup("many", [Failed(), ExceptionGroup("inner", [Failed(retry_after=9)])])
    assert retry_after_s(group) == 9
