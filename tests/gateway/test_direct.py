"""Creates and deletes are answered alike with and without FastAPI's routing, whatever is sent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.conftest import KEY, Running

# FastAPI reads both as JSON; only the first is served without its routing.
DIRECT, BY_FASTAPI = "application/json", "application/vnd.sandlot+json"
DIFFER = {
    "id",
    "name",
    "createdAt",
    "updatedAt",
    "startedAt",
    "timings",
    "gatewayAuth",
}  # from create to create

BODIES = {
    "the least": b'{"docker_image": "host"}',
    "many fields": b'{"docker_image": "host", "labels": ["a"], "environment_vars": {"A": "b"}, "timeout_minutes": 5,'
    b' "secrets": {"S": "t"}, "workdir": "/tmp", "advanced_configs": {"a": {"b": 1}}}',
    "an unknown field": b'{"docker_image": "host", "colour": "red"}',
    "numbers as text": b'{"docker_image": "host", "cpu_cores": "2"}',
    "a wrong type": b'{"docker_image": "host", "cpu_cores": []}',
    "not a number": b'{"docker_image": "host", "cpu_cores": NaN}',
    "a lone surrogate": b'{"docker_image": "\\ud800"}',
    "a field twice": b'{"docker_image": "nowhere", "docker_image": "host"}',
    "no image": b"{}",
    "no object": b"[]",
    "null": b"null",
    "nothing": b"",
    "no JSON": b"{",
    "no UTF-8": b'{"docker_image": "\xff"}',
    "deep": b'{"docker_image": "host", "advanced_configs": ' + b'{"a":' * 30 + b"1" + b"}" * 31,
    "very deep": b'{"docker_image": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "no such pool": b'{"docker_image": "host", "pool": "none"}',
}


async def _answer(box: Running, body: bytes, kind: str, **headers: str) -> tuple[int, dict[str, Any], Any]:
    answer = await box.client.post(
        "/api/v1/sandbox", content=body, headers={"content-type": kind, "user-agent": "test", **headers}
    )
    told = {name: value for name, value in answer.json().items() if name not in DIFFER}
    named = {name: answer.headers.get(name) for name in ("content-type", "retry-after", "www-authenticate")}
    return answer.status_code, told, named


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_a_create_is_answered_alike(box: Running, body: bytes) -> None:
    await box.create()  # so that no pool decides: both begin with the same warm instances
    assert await _answer(box, body, DIRECT) == await _answer(box, body, BY_FASTAPI)


@pytest.mark.parametrize("key", ["", "Bearer wrong", "Basic alpha", "Bearer"])
async def test_a_create_without_a_key_is_refused_alike(box: Running, key: str) -> None:
    body = BODIES["the least"]
    direct = await _answer(box, body, DIRECT, authorization=key)
    assert direct[0] == 401
    assert direct == await _answer(box, body, BY_FASTAPI, authorization=key)


@pytest.mark.parametrize("key", [f"bearer {KEY}", f"Bearer   {KEY}"])
async def test_a_key_is_found_alike_in_each_form_of_the_header(box: Running, key: str) -> None:
    await box.create()
    body = BODIES["the least"]
    direct = await _answer(box, body, DIRECT, authorization=key)
    assert direct[0] == 201
    assert direct == await _answer(box, body, BY_FASTAPI, authorization=key)


async def test_a_delete_is_answered_once_nothing_runs_and_again(box: Running) -> None:
    made = await box.create()
    for message in ("deleted", "the sandbox had already ended"):
        answer = await box.client.delete(f"/api/v1/sandbox/{made['id']}")
        assert (answer.status_code, answer.json()) == (200, {"success": True, "message": message})


async def test_a_delete_of_no_sandbox_is_refused_alike(box: Running) -> None:
    well_formed, strange = "sb-" + "0" * 20, "sb-0"  # only the first is served without FastAPI's routing
    first = await box.client.delete(f"/api/v1/sandbox/{well_formed}")
    second = await box.client.delete(f"/api/v1/sandbox/{strange}")
    assert first.status_code == second.status_code == 404
    assert first.text.replace(well_formed, strange) == second.text
    refused = await box.client.delete(
        f"/api/v1/sandbox/{well_formed}", headers={"authorization": "Bearer no"}
    )
    assert refused.status_code == 401
