"""What `vllm-spectool doctor` finds."""

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from vllm_spectool import __version__, cli, doctor


@pytest.fixture
def status_server() -> Iterator[tuple[str, dict[str, object]]]:
    """A server that answers with a status, and asks for a key."""
    status: dict[str, object] = {"version": 1, "on": ["o3"], "reason": None}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/v1/cache-tool-output"
            allowed = self.headers.get("Authorization") == "Bearer sk"
            self.send_response(404 if not known else 200 if allowed else 401)
            self.end_headers()
            self.wfile.write(json.dumps(status).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", status
        server.shutdown()
        thread.join()


def test_every_line_says_whether_it_is_good() -> None:
    """One finding a line."""
    lines = [finding.line for finding in doctor.examine({})]
    assert all(line.startswith(("ok    ", "FAIL  ")) for line in lines)
    assert lines[0].startswith("ok    Python 3.")


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"VLLM_SPECTOOL": "0"}, "VLLM_SPECTOOL is '0'"),
        ({"VLLM_PLUGINS": "lora"}, "VLLM_PLUGINS is 'lora'"),
    ],
)
def test_an_environment_that_turns_it_off_is_found(environ: dict[str, str], text: str) -> None:
    """With what it is set to."""
    assert any(text in each.text and not each.good for each in doctor.examine(environ))
    assert not any(text in each.text for each in doctor.examine({}))
    assert any(each.text == "VLLM_SPECTOOL is not set (on)" for each in doctor.examine({}))


def test_a_missing_or_untested_vllm_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the exit code says so."""
    for release, text in ((None, "not installed"), ("0.33.0", "0.33.0")):
        monkeypatch.setattr(doctor, "installed_vllm", lambda release=release: release)
        assert cli.main(["doctor"]) == 1
        assert text in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_a_running_server_is_asked(
    status_server: tuple[str, dict[str, object]], suffix: str
) -> None:
    """By its address or by the base URL that clients use."""
    found = doctor.ask(status_server[0] + suffix, "sk")
    assert found.good
    assert "o3 is on" in found.text


def test_a_server_that_is_off_says_why(status_server: tuple[str, dict[str, object]]) -> None:
    """In the words of its status."""
    status_server[1].update(on=[], reason="no tool calls are parsed")
    found = doctor.ask(status_server[0], "sk")
    assert not found.good
    assert "nothing is on: no tool calls are parsed" in found.text


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "file:///etc/hosts"])
def test_no_server_is_no_crash(url: str) -> None:
    """The address is repeated."""
    found = doctor.ask(url)
    assert not found.good
    assert url in found.text


def test_a_wrong_key_is_no_crash(status_server: tuple[str, dict[str, object]]) -> None:
    """What to do about it is said."""
    text = doctor.ask(status_server[0], "wrong").text
    assert "401" in text
    assert "--api-key" in text
    assert "404" not in text


def test_who_is_not_the_plugin_is_told_apart(status_server: tuple[str, dict[str, object]]) -> None:
    """Nobody, a server without it, and one that says something else."""
    assert doctor.ask("http://127.0.0.1:1").text.endswith(": nobody listens there")
    url, status = status_server
    assert "without the plugin" in doctor.ask(f"{url}/other", "sk").text
    status.clear()
    assert "nothing is on" in doctor.ask(url, "sk").text


def test_a_server_is_asked_from_a_machine_without_vllm(
    status_server: tuple[str, dict[str, object]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Then only what the server says decides."""
    monkeypatch.setattr(doctor, "installed_vllm", lambda: None)
    assert cli.main(["doctor", "--url", status_server[0], "--api-key", "sk"]) == 0
    assert "not installed here" in capsys.readouterr().out
    assert cli.main(["doctor", "--url", status_server[0]]) == 1


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """In one line."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"vllm-spectool {__version__}\n"


def test_it_runs_as_a_module() -> None:
    """Where the script is not on the path."""
    command = [sys.executable, "-m", "vllm_spectool", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_misspelt_flag_of_doctor_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Only `serve` hands flags on."""
    with pytest.raises(SystemExit):
        cli.main(["doctor", "--ulr", "x"])
    assert "--ulr" in capsys.readouterr().err
