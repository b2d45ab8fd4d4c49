"""Routes that only Prime's clients call: network policy, images asked about, what is missing, and which way to run commands."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sandlot_gateway.control import batches
from sandlot_gateway.control.unsupported import UNSUPPORTED

from tests.gateway.conftest import Running

API = "/api/v1"


async def test_policy_is_the_network_of_the_create(box: Running) -> None:
    for network, policy in (
        ("full", {"allowlist": None, "denylist": []}),
        ("none", {"allowlist": [], "denylist": None}),
    ):
        made = await box.create(network=network)
        path = f"{API}/sandbox/{made['id']}/egress-policy"
        expected = {"policy": policy, "generation": 1, "applied_generation": 1, "applied": True}
        assert (await box.client.get(path)).json() == expected
        same = await box.client.put(path, json=policy)
        assert (same.status_code, same.json()) == (200, expected)


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"allowlist": ["example.org"], "denylist": None}, "allowlist", "cannot be changed"),
        ({"allowlist": ["example.org:22"], "denylist": None}, "allowlist.0", "port must be 80 or 443"),
        ({"allowlist": None, "denylist": ["10.0.0.0/8"]}, "denylist", "cannot be changed"),
        ({"allowlist": [], "denylist": None}, "allowlist", "cannot be changed"),
        ({"allowlist": None, "denylist": None}, "allowlist", "either allowlist or denylist"),
        ({"allowlist": [], "denylist": []}, "allowlist", "either allowlist or denylist"),
        ({}, "allowlist", "either allowlist or denylist"),
        ({"allowlist": "example.org"}, "allowlist", "list"),
        ({"denylist": [1]}, "denylist.0", "string"),
    ],
)
async def test_policy_that_would_not_be_enforced_is_refused(
    box: Running, body: dict[str, Any], field: str, words: str
) -> None:
    made = await box.create()
    path = f"{API}/sandbox/{made['id']}/egress-policy"
    answer = await box.client.put(path, json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["param"] == field
    assert words in answer.json()["detail"]
    assert (await box.client.get(path)).json()["policy"] == {"allowlist": None, "denylist": []}


async def test_policy_of_a_pending_sandbox_is_not_applied_and_an_ended_one_has_none(box: Running) -> None:
    box.machine.hold_ready = asyncio.Event()
    made = await box.create(wait_seconds=0)
    path = f"{API}/sandbox/{made['id']}/egress-policy"
    status = (await box.client.get(path)).json()
    assert (status["generation"], status["applied_generation"], status["applied"]) == (1, 0, False)
    await box.client.delete(f"{API}/sandbox/{made['id']}")
    box.machine.hold_ready.set()
    assert (await box.client.get(path)).status_code == 409
    assert (await box.client.put(path, json={"denylist": []})).status_code == 409


async def test_images_are_asked_about(box: Running) -> None:
    listed = await box.client.get(f"{API}/template/registry-credentials")
    assert listed.json() == {"credentials": []}
    path = f"{API}/template/check-docker-image"
    there = await box.client.post(path, json={"image": "host", "registry_credentials_id": "x"})
    assert there.json() == {"accessible": True, "details": "there", "checked": True}
    bad = await box.client.post(path, json={"image": "bad:1"})
    assert bad.json() == {"accessible": False, "details": "no bad:1", "checked": True}
    nameless = await box.client.post(path, json={})
    assert (nameless.status_code, nameless.json()["errors"][0]["param"]) == (422, "image")


@pytest.mark.parametrize("what", UNSUPPORTED)
async def test_what_is_missing_is_named(box: Running, what: str) -> None:
    for template in UNSUPPORTED[what]:
        path = API + template.format_map(dict.fromkeys(_NAMES, "x"))
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            answer = await box.client.request(method, path)
            assert answer.status_code == 501, f"{method} {path}"
            assert what in answer.json()["detail"]
            stranger = await box.client.request(method, path, headers={"Authorization": "Bearer none"})
            assert stranger.status_code == 401


_NAMES = ("sandbox_id", "checkpoint_id", "name", "network_id", "session_id", "build_id", "tunnel_id")


@pytest.mark.parametrize(
    "path",
    ["/", "", "/nothing", "/sandbox/x/metrics", "/sandbox/x/pause", "/teams/x/members", "/auth_challenge/generate", "/%ff"],
)  # fmt: skip
async def test_everything_else_is_a_404_with_a_detail(box: Running, path: str) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        answer = await box.client.request(method, API + path)
        assert answer.status_code == 404, f"{method} {path}"
        assert "no such route" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("fields", "vm"),
    [
        ({"vm": True, "start_command": "sleep 1"}, True),
        ({"vm": False}, False),
        ({"start_command": "tail -f /dev/null"}, False),
        ({"start_command": {"executable": "sleep", "args": ["1"]}}, True),
        ({"start_command": None}, True),
        ({}, True),
    ],
)
async def test_vm_is_honoured_and_else_chosen_by_the_start_command(
    box: Running, fields: dict[str, Any], vm: bool
) -> None:
    made = await box.create(**fields)
    assert (made["vm"], made["gatewayAuth"]["is_vm"]) == (vm, vm)
    auth = await box.client.post(f"{API}/sandbox/{made['id']}/auth")
    assert auth.json()["is_vm"] is vm
    listed = (await box.client.get(f"{API}/sandbox")).json()["sandboxes"]
    assert listed[0]["vm"] is vm


@pytest.mark.parametrize(
    ("verdict", "status", "kind"),
    [
        ("oom", "ERROR", "OOM_KILLED"),
        ("deadline", "TIMEOUT", "TIMEOUT"),
        ("image_pull", "ERROR", "IMAGE_PULL_FAILED"),
        ("deleted", "TERMINATED", None),
    ],
)
async def test_reason_of_an_end_is_typed(box: Running, verdict: str, status: str, kind: str | None) -> None:
    made = await box.create()
    sidecar = box.machine.of_sandbox(made["id"])
    box.backend.lose(sidecar.instance_id, verdict=verdict, message="why")
    context = (await box.client.get(f"{API}/sandbox/{made['id']}/error-context")).json()
    assert (context["status"], context["errorType"]) == (status, kind)
    assert context["errorMessage"] == ("why" if kind else None)
    batch = await box.client.post(f"{API}/sandbox/status:batchGet", json={"sandbox_ids": [made["id"]]})
    told = batch.json()["statuses"][0]
    assert (told["status"], told["error_type"]) == (status, kind)
    gone = await box.client.post(
        f"/sbx/{made['id']}/exec", json={"command": "true"}, headers={"Authorization": f"Bearer {made['gatewayAuth']['token']}"}
    )  # fmt: skip
    assert (gone.status_code, gone.json()["error"]) == (502, "sandbox_not_found")


async def test_status_of_one_that_is_about_to_run_is_held(
    box: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "READY_HOLD", 60.0)  # longer than a start takes on a loaded machine
    box.machine.hold_ready = asyncio.Event()
    first, second = [(await box.create(wait_seconds=0))["id"] for _ in range(2)]

    async def ask(*ids: str) -> list[str]:
        answer = await box.client.post(f"{API}/sandbox/status:batchGet", json={"sandbox_ids": ids})
        return [each["status"] for each in answer.json()["statuses"]]

    assert await ask(first, second) == ["PENDING", "PENDING"]  # of several none waits for the others
    held = asyncio.create_task(ask(first))
    answered, _ = await asyncio.wait([held], timeout=0.1)
    assert not answered
    box.machine.hold_ready.set()
    assert await held == ["RUNNING"]
