"""The tool cache's own routes."""

from typing import Any
from urllib.parse import quote

import pytest

ENTRY = {"name": "weather", "params": {"city": "Rome"}, "output": "sunny"}
BOTH = pytest.mark.parametrize("path", ["/cache-tool-output", "/v1/cache-tool-output"])


def test_status_says_what_is_on(server: Any) -> None:
    """Version 1, and continuations."""
    status = server.http.get("/v1/cache-tool-output").json()
    assert status["version"] == 1
    assert "o3" in status["on"]


@BOTH
def test_posts_are_counted(server: Any, request_id: str, path: str) -> None:
    """An equal call replaces the one before."""
    url, headers = f"{path}/chatcmpl-{request_id}", {"X-Spectool-Key": server.key}
    posted = server.http.post(url, json=[ENTRY, {**ENTRY, "params": {}}], headers=headers)
    assert (posted.status_code, posted.json()) == (200, {"cached": 2})
    assert server.http.post(url, json=[ENTRY], headers=headers).json() == {"cached": 1}
    assert server.http.post(url, json=[], headers=headers).json() == {"cached": 0}
    assert server.http.delete(url, headers=headers).json() == {"deleted": 2}
    assert server.http.delete(url, headers=headers).json() == {"deleted": 0}


@BOTH
@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Basic wrong"])
def test_it_asks_for_the_servers_key(
    server: Any, request_id: str, path: str, authorization: str | None
) -> None:
    """On the paper's path as well, which vLLM leaves open."""
    if not server.has_key:
        pytest.skip("the server has no key")
    headers = {"X-Spectool-Key": server.key, "Authorization": authorization or ""}
    url = f"{path}/chatcmpl-{request_id}"
    assert server.http.post(url, json=[ENTRY], headers=headers).status_code == 401
    assert server.http.delete(url, headers=headers).status_code == 401
    assert server.delete(request_id).json() == {"deleted": 0}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("{", "body"),
        ("{}", "body"),
        ("[1]", "[0]"),
        ('[{"output": 1}]', "[0].name"),
        ('[{"name": "", "output": 1}]', "[0].name"),
        ('[{"name": "a", "output": 1}, {"name": "a"}]', "[1].output"),
        ('[{"name": "a", "output": 1, "params": []}]', "[0].params"),
        ('[{"name": "a", "output": 1, "params": null}]', "[0].params"),
        ('[{"name": "a", "output": 1, "keep_alive": 0}]', "[0].keep_alive"),
        ('[{"name": "a", "output": 1, "keep_alive": true}]', "[0].keep_alive"),
        ('[{"name": "a", "output": 1, "uses": 0}]', "[0].uses"),
        ('[{"name": "a", "output": 1, "uses": 1.5}]', "[0].uses"),
        ('[{"name": "a", "output": 1, "use": 1}]', "[0].use"),
        ('[{"name": "a", "output": NaN}]', "body"),
        ('[{"name": "a", "output": "\\ud800"}]', "body"),
    ],
)
def test_malformed_names_the_field(server: Any, request_id: str, body: str, field: str) -> None:
    """400, and nothing is kept."""
    url, headers = f"/cache-tool-output/chatcmpl-{request_id}", {"X-Spectool-Key": server.key}
    refused = server.http.post(url, content=body, headers=headers)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
    assert server.delete(request_id).json() == {"deleted": 0}


@pytest.mark.parametrize("key", [None, "short", "k" * 257, "with a blank in the middle"])
def test_a_key_is_required(server: Any, request_id: str, key: str | None) -> None:
    """400, and the header is named."""
    headers = {"X-Spectool-Key": key} if key else {}
    url = f"/cache-tool-output/chatcmpl-{request_id}"
    for refused in (
        server.http.post(url, json=[ENTRY], headers=headers),
        server.http.delete(url, headers=headers),
    ):
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "X-Spectool-Key")


def test_an_id_has_a_length(server: Any) -> None:
    """400, and the id is named."""
    headers = {"X-Spectool-Key": server.key}
    for own in ("", "x" * 300):
        refused = server.http.post(f"/cache-tool-output/{own}", json=[ENTRY], headers=headers)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "response_id")


@BOTH
@pytest.mark.parametrize("own", ["tenant/1", "/", "a%2Fb", "50%", "a?b#c"])
def test_an_id_may_hold_any_character(server: Any, request_id: str, path: str, own: str) -> None:
    """Callers choose them; one that is not found would look like a server without the cache."""
    url = f"{path}/{quote(f'chatcmpl-{request_id}{own}', safe='')}"
    headers = {"X-Spectool-Key": server.key}
    assert server.http.post(url, json=[ENTRY], headers=headers).json() == {"cached": 1}
    assert server.http.delete(url, headers=headers).json() == {"deleted": 1}


def test_too_large_is_413(server: Any, request_id: str) -> None:
    """A body, an entry, and a number of entries that the status says are too large."""
    limits = server.http.get("/v1/cache-tool-output").json()["limits"]
    assert server.post(request_id, [ENTRY] * (limits["entries"] + 1)).status_code == 413
    large = {**ENTRY, "output": "x" * limits["entry_bytes"]}
    assert server.post(request_id, [large]).status_code == 413
    assert (
        server.post(
            request_id, [large] * (limits["body_bytes"] // limits["entry_bytes"] + 1)
        ).status_code
        == 413
    )
    assert server.delete(request_id).json() == {"deleted": 0}
