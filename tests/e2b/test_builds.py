"""E2B's template builds by raw HTTP: bad input, other tenants, upload links, limits, and a gateway that dies."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import httpx
import pytest

from tests import plain_http
from tests.e2b.builds import (
    OTHER_KEY,
    START,
    checkpoints,
    client,
    ended,
    live_sandboxes,
    path_of,
    requested,
    stack,
    started,
    status,
)
from tests.e2b.conftest import AUDIT, audited
from tests.stack import Stack, private_stack
from tests.waiting import wait_until

pytestmark = pytest.mark.root

__all__ = ["client", "stack"]

NEVER = "ab" * 32  # of files that no test uploads


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "a/b"}, "name"),
        ({"name": "cp-1"}, "name"),
        ({"name": "base"}, "name"),
        ({"alias": "x", "tags": ["a b"]}, "tags"),
        ({"name": "x", "tags": [f"t{n}" for n in range(33)]}, "tags"),
        ({"name": "x", "cpuCount": -1}, "cpuCount"),
        ({"name": "x", "memoryMB": 1 << 60}, "memoryMB"),
        ({"name": "x", "cpuCount": "two"}, "cpuCount"),
        ({}, "name"),
        ([], "body"),
    ],
)
def test_a_bad_request_for_a_build_names_the_field(client: httpx.Client, body: Any, field: str) -> None:
    answer = client.post("/v3/templates", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, 400), answer.text
    assert field in answer.json()["message"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "fromImage"),
        ({"fromImage": "a:1", "fromTemplate": "b"}, "fromImage"),
        ({"fromTemplate": "no-such"}, "fromTemplate"),
        ({"fromTemplate": "cp-" + "0" * 24}, "fromTemplate"),
        ({"fromImage": "x" * 2000}, "fromImage"),
        ({**START, "fromImageRegistry": {"type": "registry", "password": "secret"}}, "fromImageRegistry"),
        ({**START, "startCmd": "a\0b"}, "startCmd"),
        ({**START, "steps": [{"type": "VOLUME", "args": ["/x"]}]}, "steps.0.type"),
        ({**START, "steps": [{"type": "RUN"}]}, "steps.0.args"),
        ({**START, "steps": [{"type": "ENV", "args": ["A=B", "c"]}]}, "steps.0.args"),
        ({**START, "steps": [{"type": "USER", "args": ["me", "true"]}]}, "steps.0.args"),
        ({**START, "steps": [{"type": "COPY", "args": ["a", "/b"]}]}, "steps.0.filesHash"),
        (
            {**START, "steps": [{"type": "COPY", "args": ["a", "/b"], "filesHash": "../.."}]},
            "steps.0.filesHash",
        ),
        (
            {**START, "steps": [{"type": "COPY", "args": ["a", "/b"], "filesHash": NEVER}]},
            "steps.0.filesHash",
        ),
        ({**START, "steps": [{"type": "COPY", "args": ["../a", "/b"], "filesHash": NEVER}]}, "steps.0.args"),
        (
            {**START, "steps": [{"type": "COPY", "args": ["a", "/b", "", "9x"], "filesHash": NEVER}]},
            "steps.0.args",
        ),
        ({**START, "steps": [{"type": "RUN", "args": ["true"]}] * 501}, "steps"),
        ({**START, "steps": [{"type": "RUN", "args": [1]}]}, "args"),
    ],
)
def test_a_bad_start_names_the_field_and_leaves_the_build_waiting(
    client: httpx.Client, body: dict[str, Any], field: str
) -> None:
    build = requested(client)
    answer = client.post(path_of(build), json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, 400), answer.text
    assert field in answer.json()["message"]
    assert "secret" not in answer.text
    assert status(client, build)["status"] == "waiting"


def test_another_tenant_finds_none_of_it(stack: Stack, client: httpx.Client) -> None:
    build = requested(client, "private")
    started(client, build)
    assert ended(client, build)["status"] == "ready"
    template = build["templateID"]
    with plain_http.client(
        base_url=f"{stack.url}/e2b", headers={"X-API-Key": OTHER_KEY}, timeout=60
    ) as other:
        answers = [
            other.get(f"/templates/{template}/builds/{build['buildID']}/status"),
            other.post(path_of(build), json=START),
            other.get(f"/templates/{template}/files/{NEVER}"),
            other.get("/templates/aliases/private"),
            other.get(f"/templates/aliases/{template}"),
            other.get("/templates/private/tags"),
            other.get(f"/templates/{template}/tags"),
            other.post("/templates/tags", json={"target": "private", "tags": ["x"]}),
            other.request("DELETE", "/templates/tags", json={"name": template, "tags": ["default"]}),
            other.delete(f"/templates/{template}"),
            other.post("/sandboxes", json={"templateID": "private"}),
            other.post("/sandboxes", json={"templateID": template}),
        ]
        assert [each.status_code for each in answers] == [404] * len(answers), [each.text for each in answers]
        assert requested(other, "private")["templateID"] != template
    with plain_http.client(base_url=f"{stack.url}/e2b", timeout=60) as nobody:
        assert nobody.post("/v3/templates", json={"name": "x"}).status_code == 401
        assert nobody.get("/templates/aliases/private").status_code == 401
    assert client.get("/templates/aliases/private").json() == {"templateID": template, "public": False}
    assert client.get("/templates/aliases/base").json() == {"templateID": "base", "public": True}
    (checkpoint,) = checkpoints(stack, "private")
    snapshots = [each["snapshotID"] for each in client.get("/snapshots").json()]
    assert checkpoint["id"] not in snapshots  # a template is deleted by its name
    assert client.delete("/templates/private").status_code == 204
    assert client.get("/templates/aliases/private").status_code == 404
    assert checkpoints(stack, "private") == []
    assert checkpoint["metadata"].keys() == {"e2b"}


def test_an_upload_needs_its_own_link(stack: Stack, client: httpx.Client) -> None:
    build = requested(client, "uploads")
    files = "01" * 32
    path = f"/templates/{build['templateID']}/files"
    told = client.get(f"{path}/{files}")
    assert (told.status_code, told.json()["present"]) == (201, False)
    link = httpx.URL(told.json()["url"])
    other = "cd" * 32
    with plain_http.client(timeout=60) as plain:
        forged = [
            link.copy_set_param("expires", "9" * 12),
            link.copy_set_param("expires", "9" * 5000),
            link.copy_set_param("signature", "A" * 43),
            link.copy_remove_param("signature"),
            link.copy_add_param("signature", "x"),
            httpx.URL(str(link).replace(files, other)),
        ]
        for url in forged:
            assert plain.put(url, content=b"x").status_code == 401, url
        assert plain.get(link).status_code == 401
        assert plain.put(link, content=b"no archive").status_code == 200
    assert client.get(f"{path}/{files}").json()["present"]
    assert not client.get(f"{path}/{other}").json()["present"]
    step = {"type": "COPY", "args": ["a", "/b"], "filesHash": files}
    started(client, build, step)
    failed = ended(client, build)
    assert (failed["status"], failed["reason"]["step"]) == ("error", "1")
    assert client.post(path_of(build), json=START).status_code == 409
    wait_until(lambda: 200 in {e["status"] for e in audited(stack, "template.upload", build["templateID"])})
    assert audited(stack, "template.upload", build["templateID"])[-1]["status"] == 200
    written = (stack.state_dir / AUDIT).read_text()
    assert link.params["signature"] not in written + stack.log()


def test_another_gateway_takes_the_files_and_knows_the_build(stack: Stack, client: httpx.Client) -> None:
    shared = ("--checkpoint-dir", str(stack.state_dir / "checkpoints"))
    build = requested(client, "shared", tags=["v1"])
    files = "23" * 32
    with (
        private_stack("--e2b", "--local-images", "host", *shared) as running,
        plain_http.client(
            base_url=f"{running.url}/e2b", headers={"X-API-Key": running.api_key}, timeout=60
        ) as other,
    ):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as tar:
            entry = tarfile.TarInfo("a")
            entry.size, entry.uid, entry.mode = 1, 1234, 0o600
            tar.addfile(entry, io.BytesIO(b"1"))
        told = other.get(f"/templates/{build['templateID']}/files/{files}").json()
        with plain_http.client(timeout=60) as plain:
            assert plain.put(told["url"], content=data.getvalue()).status_code == 200
        copy = {"type": "COPY", "args": ["a", "/srv/a/"], "filesHash": files}
        look = {"type": "RUN", "args": ["stat -c '%u %a' /srv/a/a"]}
        started(client, build, copy, look)
        found = ended(other, build)
        assert found["status"] == "ready", found
        assert "0 600" in [each["message"] for each in found["logEntries"]]
        assert other.get("/templates/aliases/shared:v1").status_code == 200
        answer = other.post("/sandboxes", json={"templateID": "shared:v1"})
        assert answer.status_code == 201, answer.text


def test_a_log_is_read_by_parts_and_bounded(client: httpx.Client) -> None:
    build = requested(client, "chatty")
    started(client, build, {"type": "RUN", "args": ["seq 1000000; head -c 100000 /dev/zero; printf '\\377'"]})
    assert ended(client, build)["status"] == "ready"
    seen: list[str] = []
    while entries := status(client, build, logsOffset=len(seen))["logEntries"]:
        assert len(entries) <= 100
        seen += [each["message"] for each in entries]
    assert seen[2:5] == ["1", "2", "3"]
    assert "the rest is not kept" in seen[-1]
    path = f"/templates/{build['templateID']}/builds/{build['buildID']}/status"
    assert client.get(path, params={"logsOffset": "-1"}).status_code == 400
    assert client.get(path, params={"logsOffset": "9" * 400}).status_code == 400


def test_a_build_whose_gateway_dies_has_failed_and_leaves_no_sandbox(
    stack: Stack, client: httpx.Client
) -> None:
    build = requested(client, "cut")
    started(client, build, {"type": "RUN", "args": ["echo begun; sleep 1000"]})
    wait_until(lambda: any(each["message"] == "begun" for each in status(client, build)["logEntries"]))
    assert len(live_sandboxes(stack, build)) == 1
    stack.kill()
    stack.start()
    found = status(client, build)
    assert (found["status"], "gateway stopped" in found["reason"]["message"]) == ("error", True), found
    wait_until(lambda: status(client, build) and not live_sandboxes(stack, build))


def test_a_template_that_is_deleted_ends_its_builds(client: httpx.Client) -> None:
    build = requested(client, "gone")
    started(client, build, {"type": "RUN", "args": ["sleep 1000"]})
    assert client.delete(f"/templates/{build['templateID']}").status_code == 204
    assert ended(client, build)["status"] == "error"


def test_a_template_and_its_settings_outlive_a_pause_a_fork_and_a_snapshot(client: httpx.Client) -> None:
    build = requested(client, "kept", tags=["v1"])
    start = "mkdir -p /srv/starts; n=$(ls /srv/starts | wc -l); touch /srv/starts/$n; sleep 0.5; touch /srv/up-$n /dev/shm/up"
    ready = "test -e /dev/shm/up"  # which no checkpoint has
    started(client, build, {"type": "RUN", "args": ["mkdir -p /srv/starts"]}, startCmd=start, readyCmd=ready)
    assert ended(client, build)["status"] == "ready"

    def made(path: str, **body: Any) -> dict[str, Any]:
        answer = client.post(path, json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def starts(box: dict[str, Any]) -> int:
        """Return how many start commands in a row, each in a sandbox of its own, were waited for."""
        headers = {"E2b-Sandbox-Id": box["sandboxID"], "X-Access-Token": box["envdAccessToken"]}
        found = 0
        while client.get("/files", params={"path": f"/srv/up-{found}"}, headers=headers).status_code == 200:
            found += 1
        return found

    def listed(template: str) -> list[str]:
        answer = client.get("/v2/sandboxes", params={"template": template})
        return [f"{each['templateID']} {each['alias']} {each['state']}" for each in answer.json()]

    box = made("/sandboxes", templateID="kept:v1", timeout=600)
    template = build["templateID"]
    assert (box["templateID"], box["alias"], starts(box)) == (template, "kept:v1", 1)
    assert client.post(f"/sandboxes/{box['sandboxID']}/pause", json={}).status_code == 204
    assert listed("kept") == listed(template) == [f"{template} kept:v1 paused"]
    box = made(f"/sandboxes/{box['sandboxID']}/connect", timeout=600)
    assert (box["templateID"], box["alias"], starts(box)) == (template, "kept:v1", 2)
    assert listed("kept:v1") == [f"{template} kept:v1 running"]
    (fork,) = made(f"/sandboxes/{box['sandboxID']}/fork", timeout=600)
    assert (fork["sandbox"]["alias"], starts(fork["sandbox"])) == ("kept:v1", 3)
    snapshot = made(f"/sandboxes/{box['sandboxID']}/snapshots")["snapshotID"]
    again = made("/sandboxes", templateID=snapshot, timeout=600)
    assert (again["templateID"], starts(again)) == (snapshot, 3)
    assert snapshot in [each["snapshotID"] for each in client.get("/snapshots").json()]


def test_a_user_is_made_also_in_an_image_without_a_program_for_it(client: httpx.Client) -> None:
    build = requested(client, "small")
    removes = {"type": "RUN", "args": ["rm /usr/sbin/useradd; rm -f /usr/sbin/adduser", "root"]}
    shows = {"type": "RUN", "args": ['echo "$(id -un) $(id -gn) $HOME $(stat -c %U:%G ~)"']}
    users = [{"type": "USER", "args": [name]} for name in ("first", "second")]
    started(client, build, removes, users[0], shows, users[1], shows)
    found = ended(client, build)
    told = [each["message"] for each in found["logEntries"]]
    assert found["status"] == "ready", told
    assert {f"{name} {name} /home/{name} {name}:{name}" for name in ("first", "second")} <= set(told)
