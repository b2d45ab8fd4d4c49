"""Each control call leaves one record in the audit log: who did what, to what, from where, with which outcome."""

from __future__ import annotations

import asyncio
import os
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import asyncssh
import pytest
from fastapi.routing import APIRoute
from sandlot_gateway.control.actions import ACTIONS
from sandlot_gateway.control.api import control_api

from tests.gateway.audit_records import record_of, records
from tests.gateway.audited import Audited, audited
from tests.gateway.conftest import API, KEY, OPERATOR, Running, running

__all__ = ["audited"]


async def test_a_record_says_when_who_what_from_where_and_with_which_outcome(audited: Audited) -> None:
    before = time.time()
    made, record = await audited.create(run="run-7")
    key = record.pop("key")
    assert re.fullmatch("[0-9a-f]{16}", key)
    when = datetime.fromisoformat(record.pop("time"))
    assert before - 0.001 <= when.timestamp() <= time.time()
    assert 0 < record.pop("ms") < (time.time() - before) * 1000
    assert record.pop("request").startswith("r-")
    assert record == {
        "type": "audit",
        "action": "sandbox.create",
        "kind": "sandbox",
        "id": made["id"],
        "sandbox": made["id"],
        "run": "run-7",
        "tenant": "alpha",
        "role": "use",
        "peer": "127.0.0.1",
        "status": 201,
        "error": None,
    }
    _, deleted = await audited.call("DELETE", f"{API}/sandbox/{made['id']}")
    assert (deleted["action"], deleted["id"], deleted["run"]) == ("sandbox.delete", made["id"], "run-7")
    assert (deleted["key"], deleted["status"]) == (key, 200)


async def test_a_key_tells_its_name_in_the_log(audited: Audited) -> None:
    told, record = await audited.call("GET", f"{API}/user/whoami", key=OPERATOR)
    assert told.json()["data"]["scope"] == {"role": "operate", "key": record["key"]}
    assert (record["tenant"], record["role"]) == ("ops", "operate")
    _, other = await audited.call("GET", f"{API}/user/whoami")
    assert other["key"] != record["key"]


def _routes() -> list[tuple[str, str]]:
    """Method and path of every route of the control API, also those that its OpenAPI does not name."""
    return [
        (method, route.path)
        for route in control_api(cast(Any, None)).routes
        if isinstance(route, APIRoute) and route.path.startswith(API)
        for method in sorted(route.methods or ())
    ]


async def test_every_route_leaves_a_record_with_a_named_action(audited: Audited) -> None:
    made = await audited.box.create()

    async def action(method: str, path: str) -> str:
        url = re.sub(r"\{\w+\}", "some", path.replace("{sandbox_id}", made["id"]))
        url += "?follow=false" if path.endswith("/events") else ""  # else it would not end
        _, record = await audited.call(method, url)
        assert record["action"] != "unknown.call", f"{method} {path}"
        assert record["sandbox"] == (made["id"] if "{sandbox_id}" in path else None), f"{method} {path}"
        return record["action"]

    routes = [*_routes(), ("GET", f"{API}/openapi.json")]
    actions = set(await asyncio.gather(*(action(method, path) for method, path in routes)))
    elsewhere = {
        "code.run",
        "sandbox.pause",
        "sandbox.set_deadline",
    }  # on wires that are off by default
    elsewhere |= {one for one in ACTIONS if one.startswith("template.")}
    assert ACTIONS - actions == {*elsewhere, "metrics.get", "peer.call", "unknown.call"}


async def test_routes_of_primes_clients_leave_records_of_what_they_made(audited: Audited) -> None:
    made, _ = await audited.create(run="r")
    one = f"{API}/sandbox/{made['id']}"
    exposed, record = await audited.call("POST", f"{one}/expose", json={"port": 80})
    exposure = exposed.json()["exposure_id"]
    assert (record["action"], record["sandbox"], record["run"]) == ("exposure.create", made["id"], "r")
    _, removed = await audited.call("DELETE", f"{one}/expose/{exposure}")
    assert (removed["action"], removed["id"]) == ("exposure.delete", record["id"])
    key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    session, opened = await audited.call(
        "POST", f"{one}/ssh-session", json={"public_key": key, "ttl_seconds": 60}
    )
    _, token = await audited.call("POST", f"{one}/auth")
    assert (token["action"], token["id"], token["sandbox"]) == ("token.create", None, made["id"])
    saved, record = await audited.call("POST", f"{one}/checkpoints")
    assert (record["action"], record["status"]) == ("checkpoint.create", saved.status_code)
    assert record["id"] == saved.json().get("id")
    warmed, record = await audited.call(
        "POST", f"{API}/image-warmups", json={"images": [{"image": "docker.io/library/alpine:3"}]}
    )
    assert (record["action"], record["id"]) == ("warmup.create", warmed.json()["id"])
    polled, record = await audited.call(
        "POST", f"{API}/sandbox/status:batchGet", json={"sandbox_ids": [made["id"]]}
    )
    assert (polled.status_code, record["action"]) == (200, "sandbox.get_status")
    # Both ids open what they name.
    text = audited.path.read_text()
    assert exposure not in text
    assert session.json()["session_id"] not in text
    assert opened["id"] is not None


async def test_one_that_deletes_many_names_them(audited: Audited) -> None:
    made = [(await audited.create(labels=["old"]))[0]["id"] for _ in range(3)]
    _, record = await audited.call("DELETE", f"{API}/sandbox", json={"labels": ["old"]})
    assert (record["action"], record["id"], record["deleted"]) == ("sandbox.delete_many", None, 3)
    assert sorted(record["ids"]) == sorted(made)


async def test_no_record_has_a_secret_or_code(audited: Audited) -> None:
    made, _ = await audited.create(
        secrets={"S": "a-secret"}, environment_vars={"E": "an-env-value"}, start_command="run-my-code"
    )
    await audited.call("POST", f"{API}/sandbox", json={"docker_image": ["a-misplaced-value"]})
    await audited.call("GET", f"{API}/sandbox?labels=a-label&api_key=in-a-query")
    text = audited.path.read_text()
    values = ("a-secret", "an-env-value", "run-my-code", "a-misplaced-value", "a-label", "in-a-query")
    for secret in (KEY, made["gatewayAuth"]["token"], *values):
        assert secret not in text


@pytest.mark.parametrize(
    "name",
    [
        '\n{"type":"audit"}\n',
        "\u2028\u2029\u0085\x0b",
        '","tenant":"ops',
        "\x00\x7f\x1b[2J",
        "x" * 20_000,
        "%ff",
    ],
    ids=["newline", "unicode", "quote", "control", "long", "bytes"],
)
async def test_no_caller_can_forge_or_break_a_line(audited: Audited, name: str) -> None:
    path = name if name == "%ff" else quote(name, safe="")
    _, record = await audited.call("DELETE", f"{API}/sandbox/{path}")
    assert (record["action"], record["tenant"]) == ("sandbox.delete", "alpha")
    assert len(record["id"]) <= 128
    assert name == "%ff" or name.startswith(record["id"])
    assert audited.path.read_bytes().isascii()
    assert len(records(audited.path)) == 1


async def test_a_request_s_own_id_cannot_either(audited: Audited) -> None:
    own = b'"}\xe2\x80\xa8\x85{"type":"audit"'
    answer = await audited.box.client.get(f"{API}/stats", headers={b"X-Request-Id": own})
    assert answer.status_code == 200
    record = await record_of(audited.path, own.decode("latin-1"))
    assert (record["action"], record["tenant"]) == ("stats.get", "alpha")
    assert audited.path.read_bytes().isascii()


async def test_reads_that_succeed_can_be_left_out(state_dir: Path, machine) -> None:
    async with running(state_dir, machine, audit_log="audit.log", audit_changes_only=True) as box:
        audited = Audited(box, state_dir / "audit.log")
        made, _ = await audited.create()
        for path in ("/sandbox", f"/sandbox/{made['id']}", "/stats", "/user/whoami"):
            assert (await box.client.get(API + path)).status_code == 200
        await audited.call("GET", f"{API}/sandbox/none")
        await audited.call("POST", f"{API}/sandbox/{made['id']}/auth")
    found = [(record["action"], record["status"]) for record in records(audited.path)]
    assert found == [("sandbox.create", 201), ("sandbox.get", 404), ("token.create", 200)]


async def test_without_the_setting_there_is_none(box: Running, state_dir: Path) -> None:
    await box.create()
    assert not [name for name in os.listdir(state_dir) if name.startswith("audit")]
    assert 'sandlot_audit_records_total{outcome="written"} 0.0' in await box.metrics()
