"""The published `prime` command line, unmodified: its sandbox commands against a real stack."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests import plain_http
from tests.prime.conftest import client_python
from tests.prime.server import Server

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

Prime = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.fixture
def nothing_left(server: Server) -> Iterator[None]:
    """Deletes what a failed test leaves: on a cluster it would take the room of later tests' pods."""
    with plain_http.client(
        base_url=server.url, headers={"Authorization": f"Bearer {server.api_key}"}
    ) as client:
        before = _live(client)
        yield
        if left := sorted(_live(client) - before):
            client.request("DELETE", "/api/v1/sandbox", json={"sandbox_ids": left}, timeout=60)


def _live(client: httpx.Client) -> set[str]:
    listed = client.get("/api/v1/sandbox", params={"is_active": True, "per_page": 1000}, timeout=60)
    return {one["id"] for one in listed.json()["sandboxes"]}


@pytest.fixture
def prime(server: Server, home: Path, nothing_left: None) -> Iterator[Prime]:
    python = client_python("prime", "0.18.0", also=("prime-sandboxes==0.5.1",))
    variables = server.variables(home)
    # It deletes by label or all only for a user id, and asks the package index for a newer version of itself.
    variables |= {"PRIME_USER_ID": "default", "PRIME_DISABLE_VERSION_CHECK": "1", "COLUMNS": "300"}
    with (home / "errors").open("w+") as errors:
        process = subprocess.Popen(
            [str(python), "-B", str(Path(__file__).with_name("cli_script.py"))],
            env=variables,
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )

        def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(["sandbox", *arguments]) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer, (home / "errors").read_text()
            done = subprocess.CompletedProcess(arguments, *json.loads(answer))
            assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
            return done

        try:
            yield run
        finally:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()  # it ends
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with a command that has not ended
                process.wait()
            process.stdout.close()


def new(prime: Prime, server: Server, name: str, *more: str) -> str:
    """The id of a new sandbox."""
    prime("create", server.image, "--name", name, "--label", name, "--memory-gb", "1", "--yes", *more)
    (made,) = json.loads(prime("list", "--label", name, "--output", "json").stdout)["sandboxes"]
    assert (made["name"], made["status"], made["labels"]) == (name, "RUNNING", [name])
    return made["id"]


@pytest.mark.longest
def test_from_create_to_delete(prime: Prime, server: Server, home: Path):
    box = new(
        prime, server, "cli", "--env", "FROM_CREATE=made", "--", "sh", "-c", "echo logged; exec sleep 35"
    )
    told = json.loads(prime("get", box, "--output", "json").stdout)
    assert (told["id"], told["docker_image"], told["memory_gb"]) == (box, server.image, 1.0)

    ran = prime("run", "--env", "A=b c", "--working-dir", "/tmp", box, "--", "bash", "-c",
                "echo $A $FROM_CREATE; pwd; echo err >&2; exit 3", code=3)  # fmt: skip
    assert "b c made\n/tmp\n" in ran.stdout
    assert "err\n" in ran.stdout + ran.stderr

    content = bytes(range(256)) * 4096
    (home / "up").write_bytes(content)
    prime("upload", box, "up", "/tmp/on/the/way")
    prime("download", box, "/tmp/on/the/way", "down")
    assert (home / "down").read_bytes() == content
    assert "logged" in prime("logs", box).stdout

    prime("delete", box, "--yes")
    assert "no longer running" in prime("run", box, "true", code=1).stdout
    assert json.loads(prime("list", "--label", "cli", "--output", "json").stdout)["sandboxes"] == []
    (ended,) = json.loads(prime("list", "--label", "cli", "--all", "--output", "json").stdout)["sandboxes"]
    assert ended["status"] == "TERMINATED"


@pytest.mark.longest
def test_deletion_by_label_and_of_all(prime: Prime, server: Server):
    first, second = new(prime, server, "one"), new(prime, server, "two")
    prime("delete", "--label", "one", "--yes")
    assert json.loads(prime("get", first, "--output", "json").stdout)["status"] == "TERMINATED"
    assert json.loads(prime("get", second, "--output", "json").stdout)["status"] == "RUNNING"
    prime("delete", "--all", "--yes")
    assert json.loads(prime("get", second, "--output", "json").stdout)["status"] == "TERMINATED"


def test_sandbox_of_an_older_client_is_listed(prime: Prime, server: Server):
    """Newer clients cannot read a start command that is a string: one would break the whole list."""
    answer = plain_http.post(
        f"{server.url}/api/v1/sandbox",
        headers={
            "Authorization": f"Bearer {server.api_key}",
            "User-Agent": "prime-sandboxes/0.2.27 python/3.11.0",
        },
        json={
            "name": "old",
            "docker_image": server.image,
            "start_command": "sleep 36",
            "labels": ["old"],
            "vm": False,
        },
        timeout=60,
    )
    assert answer.json()["startCommand"] == "sleep 36"
    (listed,) = json.loads(prime("list", "--label", "old", "--output", "json").stdout)["sandboxes"]
    assert listed["id"] == answer.json()["id"]
    assert json.loads(prime("get", listed["id"], "--output", "json").stdout)["start_command"] is None
    prime("delete", listed["id"], "--yes")


def test_what_is_missing_is_said(prime: Prime):
    assert "this server has no volumes" in prime("volumes", "list", code=1).stdout
