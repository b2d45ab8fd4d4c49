"""The control routes over a real server: tenants and keys, lists, deletes, batch calls, jobs, logs, exposures."""

from __future__ import annotations

import asyncio

import pytest

from tests import plain_http
from tests.gateway.conftest import API, Running, running
from tests.waiting import until


async def test_tenants_do_not_see_each_other(box: Running) -> None:
    made = await box.create(labels=["x"])
    path = f"{API}/sandbox/{made['id']}"
    other = box.as_tenant("key-b")
    for method, url in [
        ("GET", path),
        ("DELETE", path),
        ("POST", f"{path}/auth"),
        ("GET", f"{path}/error-context"),
        ("GET", f"{path}/logs"),
        ("GET", f"{path}/commands"),
        ("GET", f"{path}/commands/a/output"),
        ("POST", f"{path}/reset"),
        ("GET", f"{path}/expose"),
    ]:
        answer = await box.client.request(method, url, headers=other)
        assert answer.status_code == 404, f"{method} {url}"
        assert made["id"] in answer.json()["detail"]
    listed = (await box.client.get(f"{API}/sandbox", headers=other)).json()
    assert listed == {"sandboxes": [], "total": 0, "page": 1, "per_page": 50, "has_next": False}
    bulk = await box.client.request(
        "DELETE", f"{API}/sandbox", json={"sandbox_ids": [made["id"]]}, headers=other
    )
    assert bulk.json()["failed"] == [{"sandbox_id": made["id"], "error": "not found"}]
    await box.client.request("DELETE", f"{API}/sandbox", json={"labels": ["x"]}, headers=other)
    batch = await box.client.post(
        f"{API}/sandbox/status:batchGet", json={"sandbox_ids": [made["id"]]}, headers=other
    )
    assert batch.json()["errors"][0]["code"] == "NOT_FOUND"
    exec_url = f"/sbx/{made['id']}/exec"
    foreign = await box.client.post(exec_url, json={"command": "x"}, headers=other)
    assert (foreign.status_code, foreign.json()["error"]) == (502, "sandbox_not_found")
    assert (await box.client.get(path)).json()["status"] == "RUNNING"


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic a2V5LWE=", "Bearer kéy"])
async def test_without_a_key_nothing(box: Running, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header.encode("utf-8")}
    async with plain_http.async_client(base_url=box.url) as client:
        for method, url in [("GET", f"{API}/sandbox"), ("POST", f"{API}/sandbox"), ("GET", "/metrics")]:
            answer = await client.request(method, url, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json()["errors"] == []
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).status_code == 200


async def test_listing_pages_and_filters(box: Running) -> None:
    made = [await box.create(name=f"s{n}", labels=["all", f"n{n % 2}"]) for n in range(5)]
    await box.client.delete(f"{API}/sandbox/{made[0]['id']}")

    async def names(**query) -> list[str]:
        answer = await box.client.get(f"{API}/sandbox", params=query)
        assert answer.status_code == 200, answer.text
        return [one["name"] for one in answer.json()["sandboxes"]]

    assert await names() == ["s4", "s3", "s2", "s1", "s0"]
    assert await names(page=2, per_page=2) == ["s2", "s1"]
    assert await names(labels=["all", "n0"]) == ["s4", "s2", "s0"]
    assert await names(is_active="true", labels="n0") == ["s4", "s2"]
    assert await names(status="TERMINATED") == ["s0"]
    assert await names(verdict="deleted") == ["s0"]
    assert await names(verdict="oom") == []
    assert len(await names(image="os")) == 5
    assert await names(image="other") == []
    page = (await box.client.get(f"{API}/sandbox", params={"per_page": 2, "page": 3})).json()
    assert (page["total"], page["has_next"]) == (5, False)
    bad = await box.client.get(f"{API}/sandbox", params={"per_page": 1001})
    assert bad.json()["errors"][0]["param"] == "per_page"


async def test_delete_is_idempotent_and_unknown_is_404(box: Running) -> None:
    made = await box.create()
    url = f"{API}/sandbox/{made['id']}"
    assert (await box.client.delete(url)).json() == {"success": True, "message": "deleted"}
    await until(lambda: box.machine.claimed() == [])
    assert (await box.client.delete(url)).status_code == 200
    assert (await box.client.delete(f"{API}/sandbox/nope")).status_code == 404
    gone = await box.client.post(f"/sbx/{made['id']}/exec", json={"command": "x"})
    assert gone.status_code == 502
    assert gone.json()["error"] == "sandbox_not_found"
    assert gone.json()["verdict"] == gone.headers["x-sandlot-verdict"] == "deleted"
    token = (await box.client.post(f"{url}/auth")).json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    gone = await box.client.post(f"/sbx/{made['id']}/exec", json={"command": "x"}, headers=headers)
    assert (gone.status_code, gone.json()["error"]) == (502, "sandbox_not_found")


async def test_bulk_delete_by_id_and_by_labels(box: Running) -> None:
    made = [await box.create(labels=["run", f"n{n}"]) for n in range(3)]
    answer = await box.client.request(
        "DELETE", f"{API}/sandbox", json={"sandbox_ids": [made[0]["id"], "nope", made[0]["id"]]}
    )
    assert answer.json()["succeeded"] == [made[0]["id"]]
    assert answer.json()["failed"] == [{"sandbox_id": "nope", "error": "not found"}]
    answer = await box.client.request("DELETE", f"{API}/sandbox", json={"labels": ["run", "n1"]})
    assert answer.json()["succeeded"] == [made[1]["id"]]
    for body in ({}, {"sandbox_ids": []}, {"labels": ["a"], "sandbox_ids": ["b"]}):
        answer = await box.client.request("DELETE", f"{API}/sandbox", json=body)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["param"] == "sandbox_ids"
    assert box.gateway.directory.total_live == 1
    # What `prime sandbox delete --all` sends: no ids and no labels, but whose they are.
    for scope in ({"user_id": "me", "all_users": False}, {"all_users": True}):
        await box.create()
        answer = await box.client.request("DELETE", f"{API}/sandbox", json=scope)
        assert (answer.status_code, answer.json()["failed"]) == (200, [])
        assert box.gateway.directory.total_live == 0


async def test_batch_status_answers_every_id(box: Running) -> None:
    made = await box.create()
    ids = [made["id"], "nope"]
    answer = (await box.client.post(f"{API}/sandbox/status:batchGet", json={"sandbox_ids": ids})).json()
    assert [one["sandbox_id"] for one in answer["statuses"]] == [made["id"]]
    assert [one["sandbox_id"] for one in answer["errors"]] == ["nope"]
    for bad in ([], ["a", "a"], [f"s{n}" for n in range(101)]):
        answer = await box.client.post(f"{API}/sandbox/status:batchGet", json={"sandbox_ids": bad})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["param"] == "sandbox_ids"


async def test_background_jobs(box: Running) -> None:
    made = await box.create()
    ended = await box.create()
    await box.client.delete(f"{API}/sandbox/{ended['id']}")
    sidecar = box.machine.of_sandbox(made["id"])
    sidecar.files["/tmp/job_done.exit"] = "3\n"

    async def ask(*jobs: tuple[str, str]) -> dict:
        body = {"jobs": [{"sandbox_id": sandbox, "job_id": job} for sandbox, job in jobs]}
        answer = await box.client.post(f"{API}/sandbox/background-jobs/status:batchGet", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    told = await ask((made["id"], "done"), (made["id"], "runs"), (ended["id"], "a"), ("nope", "b"))
    assert {(one["job_id"], one["completed"], one["exit_code"]) for one in told["statuses"]} == {
        ("done", True, 3),
        ("runs", False, None),
    }
    assert {(one["job_id"], one["code"]) for one in told["errors"]} == {
        ("a", "NOT_RUNNING"),
        ("b", "NOT_FOUND"),
    }
    waiting = asyncio.create_task(ask((made["id"], "later")))
    await asyncio.sleep(0.1)  # in which an answer that does not wait comes
    assert not waiting.done(), "it did not wait for a job that runs"
    sidecar.files["/tmp/job_later.exit"] = "0"
    assert (await waiting)["statuses"][0]["exit_code"] == 0
    sidecar.files["/tmp/job_half.exit"] = ""
    sidecar.files["/tmp/job_bad.exit"] = "x"
    assert {
        one["completed"] for one in (await ask((made["id"], "half"), (made["id"], "bad")))["statuses"]
    } == {False}
    refused = await box.client.post(
        f"{API}/sandbox/background-jobs/status:batchGet",
        json={"jobs": [{"sandbox_id": made["id"], "job_id": "../../etc"}]},
    )
    assert refused.status_code == 422


async def test_logs_reset_and_auth(box: Running) -> None:
    made = await box.create(start_command="serve")
    path = f"{API}/sandbox/{made['id']}"
    sidecar = box.machine.of_sandbox(made["id"])
    sidecar.logs = "started\n"
    assert (await box.client.get(f"{path}/logs")).json() == {"logs": "started\n"}
    reset = (await box.client.post(f"{path}/reset")).json()
    assert (reset["success"], reset["generation"], reset["equal"]) == (True, 2, True)
    auth = (await box.client.post(f"{path}/auth")).json()
    headers = {"Authorization": f"Bearer {auth['token']}"}
    done = await box.client.post(f"/sbx/{made['id']}/exec", json={"command": "after"}, headers=headers)
    assert done.json()["stdout"] == "after"
    sidecar.reset_status = 409
    assert (await box.client.post(f"{path}/reset")).status_code == 409
    sidecar.reset_status, sidecar.reset_equal = 200, False
    unequal = await box.client.post(f"{path}/reset")
    assert (unequal.status_code, "layers/base/etc/hosts" in unequal.text) == (502, True), unequal.text
    assert (await box.client.get(path)).json()["verdict"] == "reset_failed"
    assert (await box.client.get(f"{path}/logs")).json() == {"logs": ""}


async def test_exposures(box: Running) -> None:
    made = await box.create()
    path = f"{API}/sandbox/{made['id']}/expose"
    http = (await box.client.post(path, json={"port": 8000, "name": "web"})).json()
    assert http["protocol"] == "HTTP"
    assert http["url"].startswith(f"{box.url}/expose/{http['exposure_id']}")
    tcp = (await box.client.post(path, json={"port": 5432, "protocol": "TCP"})).json()
    assert tcp["external_endpoint"] == f"127.0.0.1:{tcp['external_port']}"
    assert tcp["tls_socket"] == tcp["external_endpoint"]
    listed = (await box.client.get(path)).json()["exposures"]
    everything = (await box.client.get(f"{API}/sandbox/expose/all")).json()["exposures"]
    assert [one["exposure_id"] for one in listed] == [one["exposure_id"] for one in everything]
    assert (await box.client.delete(f"{path}/nope")).status_code == 404
    assert (await box.client.delete(f"{path}/{http['exposure_id']}")).json()["success"] is True
    assert (await box.client.post(path, json={"port": 70000})).json()["errors"][0]["param"] == "port"
    await box.client.delete(f"{API}/sandbox/{made['id']}")
    assert (await box.client.get(f"{API}/sandbox/expose/all")).json() == {"exposures": []}
    assert (await box.client.post(path, json={"port": 1})).status_code == 409


async def test_whoami_and_unknown_routes(box: Running) -> None:
    me = (await box.client.get(f"{API}/user/whoami", headers=box.as_tenant("key-small"))).json()["data"]
    assert (me["id"], me["account_limits"]) == ("small", {"max_concurrent_sandboxes": 2})
    for method, url in [("GET", f"{API}/nope"), ("GET", "/"), ("POST", f"{API}/sandbox/x/pause")]:
        answer = await box.client.request(method, url)
        assert answer.status_code == 404
        assert answer.json()["detail"].startswith("no such route")
    wrong = await box.client.put(f"{API}/sandbox", json={})
    assert wrong.status_code == 405
    assert wrong.headers.get_list("allow") == ["DELETE, GET, POST"]
    assert wrong.json() == {
        "detail": "PUT is no method of /api/v1/sandbox: send DELETE, GET, POST instead",
        "errors": [],
    }


async def test_metrics_may_be_public(state_dir, machine) -> None:
    async with running(state_dir, machine, metrics_public=True) as box, plain_http.async_client() as client:
        assert (await client.get(f"{box.url}/metrics")).status_code == 200
