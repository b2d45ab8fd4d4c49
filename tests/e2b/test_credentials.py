"""E2B's wire by raw HTTP: which sandbox each credential opens, and what the audit log has of it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import httpx
import pytest

from tests import plain_http
from tests.e2b.conftest import AUDIT, DOMAIN, OTHER_KEY, Box, audit_records, signed
from tests.stack import Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.root


CALLS = [
    ("GET", "/health"),
    ("GET", "/files?path=/etc/hostname"),
    ("POST", "/files?path=/tmp/x"),
    ("POST", "/process.Process/List"),
    ("POST", "/process.Process/Start"),
    ("POST", "/process.Process/StreamInput"),
    ("POST", "/filesystem.Filesystem/Remove"),
]


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_envd_serves_a_sandbox_to_its_own_token_alone(
    method: str, path: str, box: Box, make_box: Callable[..., Box], stack: Stack
) -> None:
    others = _other(make_box)
    for headers in (
        {},
        {"E2b-Sandbox-Id": box.id},
        {"E2b-Sandbox-Id": box.id, "X-Access-Token": "sct_AAAA.AAAA"},
        {"E2b-Sandbox-Id": box.id, "X-Access-Token": stack.api_key},
        {"E2b-Sandbox-Id": box.id, "X-Access-Token": others.token},
        {"E2b-Sandbox-Id": others.id, "X-Access-Token": box.token},
        {"E2b-Sandbox-Id": "sb-" + "0" * 20, "X-Access-Token": box.token},
        {"X-API-Key": stack.api_key, "Authorization": f"Bearer {stack.api_key}"},
    ):
        answer = box.envd.request(method, path, headers=headers)
        assert answer.status_code == 401, (headers, answer.text)
        assert answer.json()["message"]
        assert box.id not in answer.text


_OTHERS: list[Box] = []


def _other(make_box: Callable[..., Box]) -> Box:
    if not _OTHERS:
        _OTHERS.append(make_box(key=OTHER_KEY))
    return _OTHERS[0]


def test_the_control_api_serves_a_tenants_own_sandboxes_alone(
    box: Box, client: httpx.Client, make_box: Callable[..., Box]
) -> None:
    others = _other(make_box)
    for key in ("", "unknown", box.token, "e2b_" + b"unknown".hex(), "e2b_zz"):
        answer = client.get("/v2/sandboxes", headers={"X-API-Key": key})
        assert (answer.status_code, answer.json()["code"]) == (401, 401)
    as_other = {"X-API-Key": "e2b_" + OTHER_KEY.encode().hex()}
    assert [each["sandboxID"] for each in client.get("/v2/sandboxes", headers=as_other).json()] == [others.id]
    for method, path, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/timeout", {"timeout": 1}),
        ("POST", "/connect", {"timeout": 1}),
        ("PUT", "/network", {}),
        ("GET", "/metrics", None),
    ):
        answer = client.request(method, f"/sandboxes/{box.id}{path}", json=body, headers=as_other)
        assert (answer.status_code, answer.json()["code"]) == (404, 404)
    assert client.get(f"/sandboxes/{box.id}").status_code == 200


def test_a_signed_url_allows_its_file_operation_and_time_alone(box: Box, stack: Stack) -> None:
    path, later = "/etc/hostname", int(time.time()) + 60

    def status(query: dict[str, str], *, method: str = "GET") -> int:
        host = {"Host": f"49983-{box.id}.{DOMAIN}:8642"}  # which names the sandbox
        return plain_http.request(method, f"{stack.url}/files", params=query, headers=host).status_code

    assert status(signed(box, path)) == 200
    assert status(signed(box, path, expiration=later)) == 200
    assert status({**signed(box, path, expiration=later), "signature_expiration": str(later + 9)}) == 401
    assert status(signed(box, path, expiration=1)) == 401
    assert status({**signed(box, path), "path": "/etc/passwd"}) == 401
    assert status({**signed(box, path), "username": "root"}) == 401
    assert status(signed(box, path), method="POST") == 401
    assert status({"path": path}) == 401


def test_a_host_name_of_the_domain_decides_the_sandbox(
    box: Box, stack: Stack, make_box: Callable[..., Box]
) -> None:
    others = _other(make_box)
    host = {"Host": f"49983-{box.id}.{DOMAIN}"}
    token = {"X-Access-Token": box.token, "E2b-Sandbox-Id": others.id}
    assert plain_http.get(f"{stack.url}/health", headers={**host, **token}).status_code == 204
    token = {"X-Access-Token": others.token, "E2b-Sandbox-Id": others.id}
    assert plain_http.get(f"{stack.url}/health", headers={**host, **token}).status_code == 401
    code = {"Host": f"49999-{box.id}.{DOMAIN}", "E2B-Traffic-Access-Token": box.token}
    assert plain_http.get(f"{stack.url}/contexts", headers=code).status_code == 200
    there = {**code, "Host": f"49999-{others.id}.{DOMAIN}"}
    assert plain_http.get(f"{stack.url}/contexts", headers=there).status_code == 401
    api = {"Host": f"api.{DOMAIN}", "X-API-Key": stack.api_key}
    assert plain_http.get(f"{stack.url}/sandboxes/{box.id}", headers=api).status_code == 200
    there = {"E2b-Sandbox-Id": others.id, "X-Access-Token": others.token, **host}
    assert plain_http.get(f"{stack.url}/e2b/health", headers=there).status_code == 401
    other = {"Host": f"api.{DOMAIN}.elsewhere", "X-API-Key": stack.api_key}
    assert plain_http.get(f"{stack.url}/sandboxes/{box.id}", headers=other).status_code == 404


def test_calls_of_the_control_api_are_audited_without_their_credentials(
    make_box: Callable[..., Box], client: httpx.Client, stack: Stack
) -> None:
    box = make_box(key="e2b_" + OTHER_KEY.encode().hex())
    answer = client.post(
        f"/sandboxes/{box.id}/timeout", json={"timeout": 9}, headers={"X-API-Key": OTHER_KEY}
    )
    assert answer.status_code == 204
    box.rpc("process.Process/List", {})
    client.delete(f"/v2/sandboxes/{box.id}", headers={"X-API-Key": OTHER_KEY})

    def recorded() -> list[tuple[str, str, int]]:
        found = [each for each in audit_records(stack) if box.id in (each["sandbox"], each["id"])]
        return [(each["action"], each["tenant"], each["status"]) for each in found]

    wanted = [
        ("sandbox.create", "other", 201),
        ("sandbox.set_deadline", "other", 204),
        ("sandbox.delete", "other", 204),
    ]
    wait_until(lambda: recorded() == wanted)
    text = (stack.state_dir / AUDIT).read_text() + stack.log()
    assert box.token not in text
    assert OTHER_KEY not in text


@pytest.mark.parametrize(
    ("spelling", "status", "action"),
    [
        ("/sandboxes//{id}/", 200, "sandbox.get"),
        ("//v2/sandboxes/{id}", 200, "sandbox.get"),
        ("/%73andboxes%2F{id}", 200, "sandbox.get"),
        ("/sandboxes/v2/{id}", 404, "unknown.call"),
        ("/v2/v2/sandboxes/{id}", 404, "unknown.call"),
        ("/elsewhere/{id}", 404, "unknown.call"),
    ],
)
def test_no_spelling_of_a_path_escapes_the_audit(
    spelling: str, status: int, action: str, box: Box, stack: Stack
) -> None:
    request_id = uuid.uuid4().hex
    headers = {"X-API-Key": stack.api_key, "X-Request-Id": request_id}
    answer = plain_http.get(f"{stack.url}/e2b{spelling.format(id=box.id)}", headers=headers)
    assert answer.status_code == status

    def actions() -> list[str]:
        return [each["action"] for each in audit_records(stack) if each["request"] == request_id]

    wait_until(lambda: actions() == [action])
