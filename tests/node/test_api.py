"""The HTTP API, on an engine that is played."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from sandlot_node import api
from sandlot_node.failures import ImageError, Kind
from sandlot_node.machine import own_platform
from sandlot_node.metrics import Metrics

from tests import metrics_page
from tests.node.agents import PlayedEngine, preparer_of
from tests.node.registries import OPEN
from tests.waiting import until

TOKEN = "a token of the tests"
A = f"{OPEN}/a:1"
SECRET = "never shown"


@pytest.fixture
async def client(engine: PlayedEngine, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    metrics = Metrics()
    app = api.build(preparer_of(engine, tmp_path, metrics=metrics), metrics, token=TOKEN, housekeeping=3600)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://agent", headers=headers) as client,
    ):
        yield client


async def prepare(client: httpx.AsyncClient, **body: object) -> httpx.Response:
    return await client.post("/v1/images", json={"image": A, **body}, params={"wait": 10})


async def test_an_image_is_prepared_used_and_released(
    client: httpx.AsyncClient, engine: PlayedEngine
) -> None:
    answer = await prepare(client)
    assert answer.status_code == 200
    image = answer.json()
    assert image == {
        "status": "ready",
        "id": engine.id_of(A),
        "rootfs": str(engine.attached[engine.id_of(A)].rootfs),
        "names": [A],
        "digests": [],
        "config": {
            "platform": "linux/amd64",
            "env": {},
            "workdir": "/",
            "user": "",
            "entrypoint": [],
            "cmd": [],
            "stop_signal": "",
        },
        "bytes": 10,
        "uses": [],
    }
    path = f"/v1/images/{image['id']}"
    assert (await client.get("/v1/images")).json() == {"images": [image]}
    used = await client.post(f"{path}/uses", json={"slot": "slot-1"})
    assert used.json()["uses"] == ["slot-1"]
    brief = (await client.get("/v1/images", params={"brief": True})).json()
    assert brief == {"images": [{"names": [A], "bytes": 10, "uses": ["slot-1"]}], "preparing": []}
    earlier = {"until": used.json()["since"]}
    again = await client.post(f"{path}/uses", json={"slot": "slot-1"})
    assert (await client.delete(f"{path}/uses/slot-1", params=earlier)).status_code == 204
    assert (await client.get(path)).json()["uses"] == ["slot-1"], "a later use than the one that was ended"
    until = {"until": again.json()["since"]}
    assert (await client.delete(f"{path}/uses/slot-1", params=until)).status_code == 204
    assert (await client.get(path)).json()["uses"] == []
    assert (await client.post(f"{path}/uses", json={"slot": "slot-1"})).status_code == 200
    refused = await client.delete(path)
    assert refused.status_code == 409
    assert refused.json()["code"] == "in_use"
    usage = (await client.get("/v1/usage")).json()
    assert usage == {
        "platform": own_platform(),
        "budget": 1 << 40,
        "used": 10,
        "free": 1 << 40,
        "images": 1,
        "in_use": 1,
    }
    for _ in range(2):
        assert (await client.delete(f"{path}/uses/slot-1")).status_code == 204
    assert (await client.delete(path)).status_code == 204
    assert (await client.get(path)).status_code == 404
    assert (await client.delete(path)).status_code == 404
    assert (await client.post(f"{path}/uses", json={"slot": "slot-1"})).status_code == 404
    assert not engine.attached


async def test_one_call_asks_for_an_image_and_uses_it(
    client: httpx.AsyncClient, engine: PlayedEngine
) -> None:
    first = await client.post("/v1/images", json={"image": A}, params={"wait": 10, "slot": "slot-1"})
    assert (first.status_code, first.json()["uses"], "since" in first.json()) == (200, [], False), (
        "not there yet"
    )
    answer = await client.post("/v1/images", json={"image": A, "tenant": "t"}, params={"slot": "slot-1"})
    image = answer.json()
    assert (image["id"], image["uses"]) == (engine.id_of(A), ["slot-1"])
    path = f"/v1/images/{image['id']}"
    assert (await client.delete(path)).status_code == 409
    gone = await client.delete(f"{path}/uses/slot-1", params={"until": image["since"]})
    assert (gone.status_code, (await client.get(path)).json()["uses"]) == (204, [])
    for body in ({"image": "elsewhere.org/a"}, {"image": "../etc"}):
        refused = await client.post("/v1/images", json=body, params={"slot": "slot-1"})
        assert refused.json()["errors"][0]["param"] == "image", refused.text
    nameless = await client.post("/v1/images", json={"image": A}, params={"slot": ""})
    assert nameless.json()["errors"][0]["param"] == "slot"


async def test_a_private_image_is_used_by_no_other_tenant(
    client: httpx.AsyncClient, engine: PlayedEngine
) -> None:
    engine.refuse = {(A, None): ImageError(Kind.UNAUTHORIZED, "the reason")}
    auth = {"username": "u", "password": "p"}
    assert (await prepare(client, tenant="one", auth=auth)).status_code == 200
    wanted = {"wait": 10, "slot": "slot-1"}
    other = await client.post("/v1/images", json={"image": A, "tenant": "other"}, params=wanted)
    assert (other.status_code, other.json()["code"]) == (403, "unauthorized")
    assert (await client.get("/v1/images")).json()["images"][0]["uses"] == []
    own = await client.post("/v1/images", json={"image": A, "tenant": "one"}, params=wanted)
    assert own.json()["uses"] == ["slot-1"]


async def test_progress_is_told_until_the_image_is_there(
    client: httpx.AsyncClient, engine: PlayedEngine
) -> None:
    engine.gate.clear()
    await client.post("/v1/images", json={"image": A})
    await until(lambda: engine.pulls)
    first = await client.post("/v1/images", json={"image": A}, params={"wait": 0.05})
    assert first.status_code == 202
    assert first.json() == {"status": "preparing", "phase": "pulling", "done": 1, "total": 10}
    engine.gate.set()
    assert (await prepare(client)).status_code == 200


async def test_the_brief_list_names_what_is_being_prepared(
    client: httpx.AsyncClient, engine: PlayedEngine
) -> None:
    async def preparing() -> list[str]:
        return (await client.get("/v1/images", params={"brief": True})).json()["preparing"]

    engine.gate.clear()
    await client.post("/v1/images", json={"image": A})
    assert await preparing() == [A]
    engine.refuse = {(A, None): ImageError(Kind.FAILED, "the reason")}
    engine.gate.set()
    assert (await prepare(client)).status_code == 502
    assert await preparing() == []


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (Kind.UNAUTHORIZED, 403),
        (Kind.NOT_FOUND, 404),
        (Kind.WRONG_PLATFORM, 422),
        (Kind.UNSUPPORTED, 501),
        (Kind.FAILED, 502),
        (Kind.UNAVAILABLE, 503),
        (Kind.NO_SPACE, 507),
    ],
)
async def test_a_failure_has_its_kind_and_reason(
    client: httpx.AsyncClient, engine: PlayedEngine, kind: Kind, status: int
) -> None:
    engine.refuse = {(A, None): ImageError(kind, "the reason")}
    answer = await prepare(client)
    assert answer.status_code == status
    assert answer.json()["code"] == kind
    assert answer.json()["detail"] == "the reason"
    assert (answer.headers.get("Retry-After") is not None) is (status == 503)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"image": "../etc"}, "image"),
        ({"image": "elsewhere.org/a"}, "image"),
        ({"image": 7}, "image"),
        ({}, "image"),
        ({"image": A, "auth": {"username": "u", "password": SECRET}}, "tenant"),
        ({"image": A, "tenant": "t", "auth": {"password": SECRET}}, "auth"),
        ({"image": A, "tenant": "t", "auth": {"username": "u", "password": [SECRET]}}, "auth.password"),
        ({"image": A, "tenant": "t", "auth": {"username": "u", "pass": SECRET}}, "auth.pass"),
        ({"image": A, "tenant": ""}, "tenant"),
        ({"image": A, "wait": 3}, "wait"),
    ],
)
async def test_bad_input_names_its_field_and_shows_no_secret(
    client: httpx.AsyncClient, body: dict[str, object], param: str
) -> None:
    answer = await client.post("/v1/images", json=body)
    assert answer.status_code in (403, 422)
    assert [error["param"] for error in answer.json()["errors"]] == [param]
    assert SECRET not in answer.text


async def test_bad_parameters_name_their_field(client: httpx.AsyncClient) -> None:
    waits = await client.post("/v1/images", json={"image": A}, params={"wait": 31})
    assert waits.json()["errors"][0]["param"] == "wait"
    for path in ("/v1/images/latest", "/v1/images/sha256:..%2f..%2fetc"):
        answer = await client.get(path)
        assert answer.status_code in (404, 422)
    uses = await client.post(f"/v1/images/sha256:{'0' * 64}/uses", json={"slot": ""})
    assert uses.json()["errors"][0]["param"] == "slot"


@pytest.mark.parametrize(
    "header", ["", "Bearer ", "Bearer wrong", TOKEN, f"Basic {TOKEN}", f"bearer {TOKEN}"]
)
async def test_every_call_needs_the_token(client: httpx.AsyncClient, header: str) -> None:
    client.headers["Authorization"] = header
    for method, path in (
        ("POST", "/v1/images"),
        ("GET", "/v1/images"),
        ("GET", "/v1/usage"),
        ("DELETE", f"/v1/images/sha256:{'0' * 64}"),
        ("GET", "/openapi.json"),
        ("GET", "/nothing"),
    ):
        answer = await client.request(method, path)
        assert answer.status_code == 401, path
        assert answer.json()["code"] == "unauthenticated"


async def test_probes_and_metrics_need_no_token_and_name_no_image(client: httpx.AsyncClient) -> None:
    await prepare(client)
    del client.headers["Authorization"]
    assert (await client.get("/healthz")).text == "ok\n"
    metrics = (await client.get("/metrics")).text
    assert 'sandlot_node_preparations_total{result="ok"} 1.0' in metrics
    assert "sandlot_node_images 1.0" in metrics
    assert "sandlot_node_image_bytes 10.0" in metrics
    assert "sandlot_node_pulled_bytes_total 10.0" in metrics
    assert OPEN not in metrics


async def test_the_page_of_metrics_is_complete(client: httpx.AsyncClient, engine: PlayedEngine) -> None:
    engine.refuse = {(A, None): ImageError(Kind.NO_SPACE, "the reason")}
    await prepare(client)
    metrics = (await client.get("/metrics")).text
    assert 'sandlot_node_preparations_total{result="no_space"} 1.0' in metrics
    engine.refuse = {}
    await prepare(client)
    metrics_page.check("Node agent", (await client.get("/metrics")).text)


async def test_failures_are_counted_from_none(client: httpx.AsyncClient) -> None:
    """Otherwise an alert would not see the first one."""
    metrics = (await client.get("/metrics")).text
    for result in ("no_space", "unavailable", "failed", "unsupported"):
        assert f'sandlot_node_preparations_total{{result="{result}"}} 0.0' in metrics


async def test_a_defect_is_a_500_without_details(client: httpx.AsyncClient, engine: PlayedEngine) -> None:
    engine.free = None  # type: ignore[assignment, method-assign]
    answer = await client.get("/v1/usage")
    assert answer.status_code == 500
    assert answer.json()["code"] == "failed"
    assert "NoneType" not in answer.text
