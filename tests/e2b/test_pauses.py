"""Paused sandboxes over E2B's wire: the id and the token that a client has go on working, also after a restart."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests import plain_http
from tests.e2b.builds import ended, requested, started
from tests.e2b.conftest import OTHER_KEY, Box, audited, signed
from tests.stack import Stack, private_stack
from tests.waiting import wait_until

pytestmark = pytest.mark.root


def write(box: Box, path: str, content: str) -> None:
    headers = box.headers(**{"Content-Type": "application/octet-stream"})
    answer = box.envd.post("/files", params={"path": path}, content=content, headers=headers)
    assert answer.status_code == 200, answer.text


def read(box: Box, path: str) -> str:
    answer = box.envd.get("/files", params={"path": path}, headers=box.headers())
    assert answer.status_code == 200, answer.text
    return answer.text


def pause(box: Box, client: httpx.Client) -> None:
    assert client.post(f"/sandboxes/{box.id}/pause", json={"memory": True}).status_code == 204


def states(client: httpx.Client, **query: str) -> dict[str, str]:
    return {each["sandboxID"]: each["state"] for each in client.get("/v2/sandboxes", params=query).json()}


def alive(stack: Stack, client: httpx.Client) -> set[str]:
    """Ids of our own API."""
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    listed = client.get(f"{stack.url}/api/v1/sandbox?is_active=true&per_page=100", headers=headers).json()
    return {each["id"] for each in listed["sandboxes"]}


def test_a_paused_sandbox_goes_on_under_its_id_whatever_gateway_serves_it(
    stack: Stack, make_box: Callable[..., Box], client: httpx.Client
) -> None:
    box = make_box(timeout=600, metadata={"kind": "paused"}, envVars={"GREETING": "hello"})
    write(box, "/srv/step", "1")
    pause(box, client)
    assert client.post(f"/sandboxes/{box.id}/pause", json={}).status_code == 409
    gone = box.envd.get("/health", headers=box.headers())
    assert (gone.status_code, "was not found" in gone.text) == (502, True)
    assert client.post(f"/sandboxes/{box.id}/timeout", json={"timeout": 60}).status_code == 404
    stack.kill()
    stack.start()
    assert states(client, state="paused", metadata="kind=paused") == {box.id: "paused"}
    assert states(client, state="running", metadata="kind=paused") == {}
    assert client.get(f"/sandboxes/{box.id}").json()["state"] == "paused"
    with ThreadPoolExecutor() as several:  # of which one begins it
        answers = list(
            several.map(
                lambda _: client.post(f"/v2/sandboxes/{box.id}/connect", json={"timeout": 600}), range(4)
            )
        )
    assert {(each.status_code // 100, each.json().get("sandboxID")) for each in answers} == {(2, box.id)}
    assert {each.json()["envdAccessToken"] for each in answers} == {box.token}
    assert states(client, metadata="kind=paused") == {box.id: "running"}
    assert read(box, "/srv/step") == "1"
    assert b"aGVsbG8K" in box.run("echo $GREETING")
    query = signed(box, "/srv/step")
    assert box.envd.get("/files", params=query, headers={"E2b-Sandbox-Id": box.id}).text == "1"
    write(box, "/srv/step", "2")
    pause(box, client)
    assert states(client, metadata="kind=paused") == {box.id: "paused"}
    assert client.post(f"/sandboxes/{box.id}/resume", json={}).status_code == 201
    assert read(box, "/srv/step") == "2"
    stack.kill()
    stack.start()
    assert read(box, "/srv/step") == "2"
    assert client.get("/snapshots").json() == []
    assert client.delete(f"/sandboxes/{box.id}").status_code == 204
    assert client.post(f"/v2/sandboxes/{box.id}/connect", json={}).status_code == 404
    assert states(client, metadata="kind=paused") == {}


def test_a_paused_sandbox_is_its_tenants_alone_and_can_be_killed(
    make_box: Callable[..., Box], client: httpx.Client
) -> None:
    box = make_box(timeout=600)
    with ThreadPoolExecutor() as several:
        answers = list(several.map(lambda _: client.post(f"/sandboxes/{box.id}/pause", json={}), range(2)))
    assert [each.status_code for each in answers].count(204) == 1
    (refused,) = [each for each in answers if each.status_code != 204]
    # The SDK sends the one again, and takes the other for a pause.
    told = {503: "checkpoint", 409: "is paused already"}[refused.status_code]
    assert told in refused.json()["message"]
    other = {"X-API-Key": OTHER_KEY}
    assert client.get(f"/sandboxes/{box.id}", headers=other).status_code == 404
    assert client.post(f"/v2/sandboxes/{box.id}/connect", json={}, headers=other).status_code == 404
    assert client.delete(f"/sandboxes/{box.id}", headers=other).status_code == 404
    assert client.get("/v2/sandboxes", headers=other, params={"state": "paused"}).json() == []
    assert client.post(f"/v2/sandboxes/{box.id}/connect", json={"timeout": 0}).status_code == 400
    assert client.delete(f"/sandboxes/{box.id}").status_code == 204
    assert client.delete(f"/sandboxes/{box.id}").status_code == 404
    assert client.post(f"/v2/sandboxes/{box.id}/connect", json={}).status_code == 404
    assert states(client, state="paused") == {}


def test_a_sandbox_whose_secrets_are_not_kept_is_not_paused(
    stack: Stack, make_box: Callable[..., Box], client: httpx.Client
) -> None:
    body = {"docker_image": "host", "secrets": {"TOKEN": "s3cr3t"}}
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    made = client.post(f"{stack.url}/api/v1/sandbox", json=body, headers=headers).json()
    answer = client.post(f"/sandboxes/{made['id']}/pause", json={})
    assert (answer.status_code, "'TOKEN'" in answer.json()["message"]) == (400, True)
    assert client.get(f"/sandboxes/{made['id']}").json()["state"] == "running"


def test_a_fork_leaves_no_snapshot(stack: Stack, box: Box, client: httpx.Client) -> None:
    assert client.post(f"/sandboxes/{box.id}/fork", json={"count": 21}).status_code == 400
    answer = client.post(f"/sandboxes/{box.id}/fork", json={"count": 1, "timeout": 60})
    assert (answer.status_code, [list(each) for each in answer.json()]) == (201, [["sandbox"]])
    made = answer.json()[0]["sandbox"]["sandboxID"]
    assert made != box.id
    (record,) = wait_until(lambda: [e for e in audited(stack, "sandbox.fork", box.id) if e["status"] == 201])
    assert (record["sandbox"], record["ids"]) == (box.id, [made])
    assert client.delete(f"/sandboxes/{made}").status_code == 204
    assert client.get("/snapshots").json() == []
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    url = f"{stack.url}/api/v1/sandbox/{box.id}/checkpoints"
    wait_until(lambda: client.get(url, headers=headers).json()["checkpoints"] == [])


def test_a_sandbox_that_goes_on_is_not_paused_again_once_it_ends(
    stack: Stack, make_box: Callable[..., Box], client: httpx.Client
) -> None:
    box = make_box(timeout=600)
    pause(box, client)
    before = alive(stack, client)
    checkpoints = stack.state_dir / "checkpoints"
    document, files = sorted(checkpoints.glob(f"cp-{box.id.removeprefix('sb-')}*"))
    kept = {path: path.read_bytes() for path in (document, *files.iterdir())}
    assert client.post(f"/v2/sandboxes/{box.id}/connect", json={"timeout": 600}).status_code == 201
    files.mkdir(exist_ok=True)
    for path, content in kept.items():  # as a connect leaves them that was answered before the sandbox ran
        path.write_bytes(content)
    (second,) = alive(stack, client) - before
    assert client.post(f"/v2/sandboxes/{box.id}/connect", json={}).status_code == 200
    snapshot = client.post(f"/sandboxes/{box.id}/snapshots", json={}).json()["snapshotID"]
    listed = client.get("/snapshots", params={"sandboxID": box.id}).json()
    assert [each["snapshotID"] for each in listed] == [snapshot]
    assert client.delete(f"/templates/{snapshot}").status_code == 204
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    assert client.delete(f"{stack.url}/api/v1/sandbox/{second}", headers=headers).status_code == 200
    assert client.get(f"/sandboxes/{box.id}").status_code == 404
    (record,) = wait_until(lambda: audited(stack, "sandbox.pause", box.id))
    assert (record["sandbox"], record["status"]) == (box.id, 204)


def test_a_record_that_is_too_large_for_lists_is_not_written(
    make_box: Callable[..., Box], client: httpx.Client
) -> None:
    box = make_box(envVars={f"V{number}": "x" * 20_000 for number in range(4)})
    answer = client.post(f"/sandboxes/{box.id}/pause", json={})
    assert (answer.status_code, answer.json()["message"].split(":")[0]) == (400, "envs")
    assert client.delete(f"/sandboxes/{box.id}").status_code == 204


def test_a_kill_ends_a_paused_sandbox_that_another_gateway_is_continuing(
    stack: Stack, client: httpx.Client, envd: httpx.Client, make_box: Callable[..., Box]
) -> None:
    build = requested(client, "held")
    started(client, build, readyCmd="test ! -e /srv/hold || test -e /srv/go")
    assert ended(client, build)["status"] == "ready"
    box = make_box(templateID="held", timeout=600)
    write(box, "/srv/hold", "")
    pause(box, client)
    shared = ("--checkpoint-dir", str(stack.state_dir / "checkpoints"))
    with (
        private_stack("--e2b", "--local-images", "host", "--pool", "warm=1", *shared) as running,
        plain_http.client(
            base_url=f"{running.url}/e2b", headers={"X-API-Key": running.api_key}, timeout=60
        ) as other,
        ThreadPoolExecutor() as several,
    ):
        path = f"/sandboxes/{box.id}"
        connecting = several.submit(other.post, f"{path}/connect", json={"timeout": 600})
        wait_until(lambda: other.get(path).json().get("state") == "running")
        resumed = Box(box.id, other.get(path).json()["envdAccessToken"], other)
        assert (
            read(resumed, "/srv/hold") == ""
        )  # it has its files: only the ready command is still waited for
        assert client.delete(path).status_code == 204
        write(resumed, "/srv/go", "")
        answer = connecting.result()
        assert (answer.status_code, "was killed" in answer.text) == (404, True), answer.text
        assert states(other) == {}
        for each in (client, other):
            assert each.post(f"{path}/connect", json={}).status_code == 404
