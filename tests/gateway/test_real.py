"""The control API over real sidecars and the real local backend."""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import pytest

from tests import plain_http
from tests.stack import Stack, private_stack
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces, mounts and cgroups"),
]

API = "/api/v1"


@pytest.fixture
def _no_leaks() -> None:
    """All of the stack is looked at instead, see `stack`."""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack("--pool", "warm=2", descriptors=True) as stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    with plain_http.client(base_url=stack.url, headers=headers, timeout=60) as client:
        yield client


def create(client: httpx.Client, **fields) -> dict:
    answer = client.post(f"{API}/sandbox", json={"docker_image": "host", **fields})
    assert answer.status_code == 201, answer.text
    assert answer.json()["status"] == "RUNNING", answer.text
    return answer.json()


def run(client: httpx.Client, sandbox_id: str, command: str) -> dict:
    answer = client.post(f"/sbx/{sandbox_id}/exec", json={"command": command, "timeout": 20})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_sandbox_from_its_create_to_its_end(client: httpx.Client) -> None:
    made = create(
        client,
        environment_vars={"PLAIN": "one"},
        secrets={"SECRET": "two"},
        start_command="echo begun; exec sleep 1000",
        workdir="/tmp",
        network="none",
    )
    told = run(client, made["id"], "echo $PLAIN $SECRET; pwd; ls /sys/class/net | tr '\\n' ' '")
    first, second, nets = told["stdout"].splitlines()
    assert (first, second) == ("one two", "/tmp")
    assert nets.split() == ["lo"]
    wait_until(lambda: client.get(f"{API}/sandbox/{made['id']}/logs").json()["logs"] == "begun\n")
    run(client, made["id"], "nohup sh -c 'sleep 0.3; echo 7 > /tmp/job_abc.exit' >/dev/null 2>&1 &")
    body = {"jobs": [{"sandbox_id": made["id"], "job_id": "abc"}]}

    def job() -> dict:
        return client.post(f"{API}/sandbox/background-jobs/status:batchGet", json=body).json()["statuses"][0]

    wait_until(lambda: job()["completed"])
    assert job()["exit_code"] == 7

    reset = client.post(f"{API}/sandbox/{made['id']}/reset").json()
    assert reset["equal"] is True
    assert run(client, made["id"], "ls /tmp/job_abc.exit")["exit_code"] != 0
    assert run(client, made["id"], "echo $PLAIN $SECRET")["stdout"] == "one two\n"

    assert client.delete(f"{API}/sandbox/{made['id']}").json()["success"] is True
    gone = client.post(f"/sbx/{made['id']}/exec", json={"command": "true"})
    assert (gone.status_code, gone.json()["verdict"]) == (502, "deleted")


def test_deadline_and_idle_end_a_sandbox(client: httpx.Client) -> None:
    dead = create(client, timeout_seconds=3)
    idle = create(client, idle_timeout_seconds=3)

    def status(made: dict) -> tuple[str, str, str]:
        told = client.get(f"{API}/sandbox/{made['id']}").json()
        return told["status"], told["verdict"], told["terminationReason"]

    wait_until(lambda: status(dead) == ("TIMEOUT", "deadline", "Timeout"))
    wait_until(lambda: status(idle) == ("TERMINATED", "idle", "Idle Timeout"))
    context = client.get(f"{API}/sandbox/{dead['id']}/error-context").json()
    assert context["errorType"] == "TIMEOUT"


def test_after_a_kill_everything_is_found_again(stack: Stack, client: httpx.Client) -> None:
    made = create(client, name="kept", labels=["l"], secrets={"S": "x"}, idempotency_key="k")
    reset = create(client, name="was reset")
    assert client.post(f"{API}/sandbox/{reset['id']}/reset").status_code == 200
    run(client, made["id"], "echo kept > /tmp/file")
    run(client, reset["id"], "echo kept > /tmp/file")
    stack.kill()
    stack.start()
    again = client.get(f"{API}/sandbox/{made['id']}").json()
    assert (again["name"], again["labels"], again["status"]) == ("kept", ["l"], "RUNNING")
    assert create(client, idempotency_key="k")["id"] == made["id"]
    for one in (made, reset):
        auth = one["gatewayAuth"]
        answer = client.post(
            f"/{auth['user_ns']}/{auth['job_id']}/exec",
            json={"command": "cat /tmp/file; echo $S"},
            headers={"Authorization": f"Bearer {auth['token']}"},
        )
        assert answer.json()["stdout"].split() == (["kept", "x"] if one is made else ["kept"])
        assert client.delete(f"{API}/sandbox/{one['id']}").json()["success"] is True


def test_a_bad_image_is_a_422_that_names_it(client: httpx.Client) -> None:
    before = client.get(f"{API}/sandbox").json()["total"]
    answer = client.post(f"{API}/sandbox", json={"docker_image": "/nowhere/at/all.tar"})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["param"] == "docker_image"
    assert client.get(f"{API}/sandbox").json()["total"] == before
