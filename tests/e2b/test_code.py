"""The code interpreter's wire by raw HTTP: who may use it, hostile cells, and what a loss or a client that leaves does."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.e2b.conftest import OTHER_KEY, Box
from tests.e2b.test_leaving import in_flight
from tests.e2e.processes import init, sidecars
from tests.sidecar.processes import command_line, descendants
from tests.stack import Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.root

CALLS = [
    ("POST", "/execute"),
    ("POST", "/contexts"),
    ("GET", "/contexts"),
    ("DELETE", "/contexts/default"),
    ("POST", "/contexts/default/restart"),
]
# Writes into what the context's program answers.
WRITES = """
import os, time
open(f"/proc/{{os.getppid()}}/fd/1", "wb").write({})
time.sleep(60)
"""


def test_the_interpreter_serves_a_sandbox_to_its_own_token_alone(
    box: Box, make_box: Callable[..., Box], stack: Stack
) -> None:
    others = make_box(key=OTHER_KEY)
    for method, path in CALLS:
        for headers in (
            {},
            {"E2b-Sandbox-Id": box.id},
            {"E2b-Sandbox-Id": box.id, "X-Access-Token": others.token},
            {"E2b-Sandbox-Id": box.id, "E2B-Traffic-Access-Token": others.token},
            {"E2b-Sandbox-Id": box.id, "X-API-Key": stack.api_key, "X-Access-Token": stack.api_key},
        ):
            answer = box.envd.request(method, path, headers=headers)
            assert (answer.status_code, box.id in answer.text) == (401, False), (method, path, headers)
        wrong = box.envd.request(method, path, headers=box.headers(**{"E2b-Sandbox-Port": "49983"}))
        assert wrong.status_code == 502
    # The token of another port's calls opens nothing else.
    headers = {"E2b-Sandbox-Id": box.id, "E2B-Traffic-Access-Token": box.token}
    assert box.envd.get("/health", headers=headers).status_code == 401


def test_the_token_of_apps_begins_few_contexts(make_box: Callable[..., Box], client: httpx.Client) -> None:
    box = make_box()
    told = client.post(f"/sandboxes/{box.id}/connect", json={"timeout": 600}).json()
    headers = {"E2b-Sandbox-Id": box.id, "E2B-Traffic-Access-Token": told["trafficAccessToken"]}

    def begun(headers: dict[str, str]) -> int:
        return box.envd.post("/contexts", json={}, headers=headers).status_code

    with ThreadPoolExecutor(10) as several:
        answers = list(several.map(begun, [headers] * 10))
    assert sorted(answers) == [200] * 8 + [429] * 2
    assert begun(box.headers()) == 200
    for context in box.envd.get("/contexts", headers=headers).json()[:2]:
        assert box.envd.delete(f"/contexts/{context['id']}", headers=headers).status_code == 204
    assert (begun(headers), begun(headers)) == (200, 429)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "code"),
        ({"code": "1", "language": "javascript"}, "language"),
        ({"code": "1", "language": "python", "context_id": "default"}, "language"),
        ({"code": "1", "env_vars": {"A=B": "c"}}, "env_vars"),
        ({"code": "1", "env_vars": {"A": 1}}, "env_vars"),
    ],
)
def test_a_bad_request_names_its_field(body: dict[str, object], field: str, box: Box) -> None:
    answer = box.envd.post("/execute", json=body, headers=box.headers())
    assert answer.status_code == 400
    assert field in answer.text


def test_a_context_that_never_was_is_not_found(box: Box) -> None:
    for name in ("0" * 32, "default.2", "../x", "\x00"):
        answer = box.envd.post("/execute", json={"code": "1", "context_id": name}, headers=box.headers())
        assert answer.status_code == 404, answer.text


@pytest.mark.parametrize("written", ["b'no answer' + b'\\n'", "b'x' * (15 << 20)"])
def test_code_that_writes_into_its_answers_harms_only_itself(
    written: str, make_box: Callable[..., Box]
) -> None:
    box = make_box(timeout=120)
    box.execute("x = 1")
    last = box.execute(WRITES.format(written))[-1]
    assert (last["type"], last["name"]) == ("error", "ContextRestarting")
    assert box.execute("'x' in globals()")[1]["text"] == "False"


def test_a_cell_whose_client_leaves_is_interrupted_or_never_begins(
    make_box: Callable[..., Box], stack: Stack
) -> None:
    box = make_box(timeout=120)
    sleeps = {"code": "ran = ['first']\nprint('begun', flush=True)\nimport time\ntime.sleep(60)"}
    body = json.dumps({"code": "ran.append('queued')"})
    head = {
        "Host": "x",
        **box.headers(),
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    queued = "POST /e2b/execute HTTP/1.1\r\n" + "".join(
        f"{name}: {value}\r\n" for name, value in head.items()
    )
    with box.envd.stream("POST", "/execute", json=sleeps, headers=box.headers()) as first:
        lines = first.iter_lines()
        while "begun" not in next(lines):
            pass
        with socket.create_connection(("127.0.0.1", stack.port)) as second:
            second.sendall(f"{queued}\r\n{body}".encode())
            wait_until(lambda: in_flight(stack) == 2)
            second.settimeout(1.0)
            with pytest.raises(TimeoutError):
                second.recv(1)
        wait_until(lambda: in_flight(stack) == 1)  # the queued one has left before the first does
    assert box.execute("ran")[1]["text"] == "['first']"


def test_a_loss_cuts_the_answer_and_is_no_result(make_box: Callable[..., Box], stack: Stack) -> None:
    box = make_box(timeout=300)

    def after() -> tuple[int, str]:
        answer = box.envd.post("/execute", json={"code": "6 * 7"}, headers=box.headers())
        return answer.status_code, answer.text

    _cut_by(box, lambda: init(_sidecar_of(stack)))
    for _ in range(2):  # nobody has been told that the state is gone
        status, text = after()
        assert (status, "lost" in text) == (502, True), text
    restart = "/contexts/default/restart"  # which is lost, too, until the sandbox has another init
    wait_until(lambda: box.envd.post(restart, headers=box.headers()).status_code == 204)
    assert box.execute("6 * 7")[1]["text"] == "42"
    _cut_by(box, lambda: _sidecar_of(stack))

    def is_gone() -> bool:  # before the gateway knows, the connection that it lost is what it tells
        status, text = after()
        assert status == 502, text
        return "was not found" in text

    wait_until(is_gone)


def _cut_by(box: Box, victim: Callable[[], int]) -> None:
    """Kill a process while a cell runs."""
    cell = "import subprocess\nprint('begun', flush=True)\nsubprocess.run(['sleep', '4207'])"
    with box.envd.stream("POST", "/execute", json={"code": cell}, headers=box.headers()) as answer:
        lines = answer.iter_lines()
        while "begun" not in next(lines):
            pass
        os.kill(victim(), signal.SIGKILL)
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)


def _sidecar_of(stack: Stack) -> int:
    """The sidecar whose sandbox runs the cell of `_cut_by`."""
    return wait_until(lambda: next((each for each in sidecars(stack) if _sleeps_in(each)), 0))


def _sleeps_in(sidecar: int) -> bool:
    return any(command_line(pid).endswith(b"sleep\x004207\0") for pid in descendants(sidecar))
