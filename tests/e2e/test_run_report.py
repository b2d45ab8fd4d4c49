"""The report at the end of a run: a page that obeys no name, the command line's lines, and no failure of its own."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import Client, Run, Runs, Sandbox

from tests import plain_http
from tests.cli.conftest import command_line
from tests.stack import Stack, private_stack

HOSTILE = "</title><script>alert(1)</script>"
COMMAND = "sleep 0.4; echo '<img src=x onerror=alert(2)>'"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack() as stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(url=stack.url, api_key=stack.api_key) as client:
        yield client


def connect(stack: Stack, sandbox_id: str, command: str) -> None:
    """Run a command as Prime's clients do."""
    message = json.dumps({"command": {"cmd": "sh", "args": ["-c", command]}}).encode()
    headers = {"Authorization": f"Bearer {stack.api_key}", "Content-Type": "application/connect+json"}
    path = f"/sbx/{sandbox_id}/command_session.CommandSession/Start"
    with plain_http.client(base_url=stack.url, headers=headers, timeout=60) as client:
        answer = client.post(path, content=b"\0" + len(message).to_bytes(4, "big") + message)
    assert answer.status_code == 200, answer.text


def run_in_pieces(stack: Stack, sandbox_id: str, command: str) -> None:
    """Run a command whose body comes in pieces, between which the gateway answers another request."""
    headers = {"Authorization": f"Bearer {stack.api_key}", "Content-Type": "application/json"}
    with plain_http.client(base_url=stack.url, headers=headers, timeout=60) as client:

        def pieces() -> Iterator[bytes]:
            body = json.dumps({"command": command}).encode()
            for piece in (body[:15], body[15:18], body[18:]):
                yield piece
                plain_http.get(f"{stack.url}/healthz")

        answer = client.post(f"/sbx/{sandbox_id}/exec", content=pieces())
    assert answer.status_code == 200, answer.text


def test_a_run_leaves_a_page_and_its_commands(stack: Stack, client: Client, tmp_path: Path) -> None:
    file = tmp_path / "reports" / "run.html"
    names = {"holder": "<svg onload=alert(3)>"}
    with Run("reported", name=HOSTILE, metadata=names, report=file, client=client):
        box = Sandbox.create("host", client=client)
        box.exec(COMMAND)
        box.exec(["true", "--quickly"])
        box.start("echo streamed").wait()
        connect(stack, box.id, "echo session")
        run_in_pieces(stack, box.id, "echo in pieces")
        outside = Sandbox.create("host", client=client, run_id="")
        outside.exec("echo of no run")
        outside.delete()
    html = file.read_text()
    assert re.findall(r"<(script|img|svg|iframe|a|link)\b", html) == []
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "&lt;img src=x onerror=alert(2)&gt;" in html
    assert "&lt;svg onload=alert(3)&gt;" in html

    report = Runs(client=client).report("reported")
    assert (report.run.state, report.ends, report.masked) == ("ENDED", {"deleted": 1}, {})
    assert report.usage.sandboxes == 1
    assert report.commands.count >= 5
    commands = {one.command: one for one in report.commands.slowest}
    assert commands.keys() == {COMMAND, "echo streamed", "true --quickly", "echo session", "echo in pieces"}
    first = commands[COMMAND]
    assert (first.sandbox_id, first.verdict, first.op_id != "") == (box.id, "exited", True)
    assert first.seconds >= 0.4
    times = [one.seconds for one in report.commands.slowest]
    assert times == sorted(times, reverse=True)

    cli = command_line(stack.url, stack.api_key, tmp_path / "home")
    for command in ("show", "report"):
        shown = cli("runs", command, "reported").stdout
        assert re.search(rf"exited +{box.id} +sleep 0\.4", shown), shown
        assert "0 lost by the infrastructure" in shown
    again = tmp_path / "again.html"
    assert cli("runs", "report", "reported", "--html", str(again)).returncode == 0
    assert "&lt;script&gt;" in again.read_text()


def test_a_report_that_cannot_be_written_hides_nothing(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with (
        caplog.at_level(logging.WARNING, "sandlot"),
        pytest.raises(ZeroDivisionError),
        Run("unwritten", report=blocked / "run.html", client=client),
    ):
        raise ZeroDivisionError
    assert "the report of run unwritten could not be written" in caplog.text
    assert Runs(client=client).get("unwritten").state == "ENDED"
    with pytest.raises(ValueError, match=r"report: .* is a directory"):
        Run("unwritten", report=tmp_path)
