"""How an instance ends: by its times, a request or a signal, and when a request is refused."""

from __future__ import annotations

import asyncio

import pytest

from tests.sidecar.calls import exists, has_running
from tests.waiting import until

pytestmark = pytest.mark.root


@pytest.mark.slow
async def test_deadline(make) -> None:
    box = await make(claim={"timeout": 15.0})
    op = await box.op("sleep 300", wait=0, detach=True)
    assert op["state"] in ("running", "queued")
    event = await box.webhooks.wait("ended")
    assert event["verdict"] == "deadline"
    assert await box.wait_exit() == 0
    assert not exists(box.socket)


@pytest.mark.longest
@pytest.mark.slow
async def test_idle_timeout_counts_from_the_last_use(make) -> None:
    box = await make(claim={"idle_timeout": 12})
    for _ in range(3):
        await asyncio.sleep(4.1)  # three of these are longer than the idle timeout
        await box.exec("true")
    await box.exec("sleep 12.5")
    state = (await box.call("GET", "/v1/state")).json()
    event = await box.webhooks.wait("ended")
    assert event["verdict"] == "idle"
    assert event["sent_at"] - state["last_active_at"] >= 11.95
    assert await box.wait_exit() == 0


async def test_end_kills_and_refuses(make) -> None:
    box = await make(claim={})
    await box.webhooks.wait("claimed")
    box.webhooks.statuses = [503, 503]
    running = asyncio.create_task(box.exec("sleep 300", op="runs"))
    await until(lambda: has_running(box, 1))
    box.webhooks.answering.clear()  # it exits once its end is heard, and would be gone before the last request
    answer = await box.instance("POST", "/v1/end", json={"verdict": "idle", "message": "nobody used it"})
    assert (answer.json()["phase"], answer.json()["verdict"]) == ("ended", "idle")
    result = await running
    assert result["verdict"] == "sandbox_ended"
    again = await box.instance("POST", "/v1/end", json={"verdict": "deleted"})
    assert again.json()["verdict"] == "idle"
    refused = await box.call("POST", "/v1/exec", json={"command": "true"})
    assert (refused.status_code, refused.json()["error"], refused.json()["verdict"]) == (
        410,
        "ended",
        "idle",
    )
    assert (await box.instance("POST", "/v1/claim", json=box.claim_body())).status_code == 410
    assert (await box.client.get("/healthz")).status_code == 503
    box.webhooks.answering.set()
    assert await box.wait_exit() == 0
    events = [event for event in box.webhooks.events if event["event"] == "ended"]
    assert [event["answered"] for event in events] == [503, 503, 200]
    assert events[1]["received_at"] - events[0]["received_at"] >= 0.03


async def test_verdict_of_an_end_is_checked(make) -> None:
    box = await make()
    answer = await box.instance("POST", "/v1/end", json={"verdict": "because"})
    assert (answer.status_code, answer.json()["field"]) == (400, "verdict")


async def test_sigterm_ends_in_order(make) -> None:
    box = await make(claim={})
    assert box.process is not None
    box.process.terminate()
    event = await box.webhooks.wait("ended")
    assert event["verdict"] == "evicted"
    assert await box.wait_exit() == 0
    assert not exists(box.socket)


async def test_an_end_only_of_what_nobody_owns(make) -> None:
    owned = await make(claim={})
    refused = await owned.instance("POST", "/v1/end", json={"only_unclaimed": True})
    assert (refused.status_code, refused.json()["error"]) == (409, "claimed")
    assert (await owned.exec("echo lives"))["stdout"] == "lives\n"
    free = await make()
    ended = await free.instance("POST", "/v1/end", json={"only_unclaimed": True})
    assert (ended.status_code, ended.json()["phase"]) == (200, "ended")
    bad = await owned.instance("POST", "/v1/end", json={"only_unclaimed": "yes"})
    assert (bad.status_code, bad.json()["field"]) == (400, "only_unclaimed")


async def test_an_end_only_of_what_no_other_sandbox_owns(make) -> None:
    owned = await make(claim={"sandbox_id": "sb-one"})
    refused = await owned.instance("POST", "/v1/end", json={"only_of": "sb-two"})
    assert (refused.status_code, refused.json()["error"]) == (409, "claimed")
    assert refused.json()["sandbox_id"] == "sb-one"
    assert (await owned.exec("echo lives"))["stdout"] == "lives\n"
    for box in (owned, await make()):
        ended = await box.instance("POST", "/v1/end", json={"only_of": "sb-one"})
        assert (ended.status_code, ended.json()["phase"]) == (200, "ended")


async def test_an_end_only_of_what_its_owner_has_not_used(make) -> None:
    unused = await make(claim={"start_command": "sleep 100"})
    assert (await unused.instance("GET", "/v1/state")).status_code == 200
    ended = await unused.instance("POST", "/v1/end", json={"only_unused": True, "only_of": "sb-another"})
    assert (ended.status_code, ended.json()["error"]) == (409, "claimed")
    ended = await unused.instance("POST", "/v1/end", json={"only_unused": True})
    assert ended.status_code == 200
    for use in ("/v1/use", "/v1/exec"):
        box = await make(claim={})
        assert (await box.call("POST", use, json={"command": "true"})).status_code == 200
        refused = await box.instance("POST", "/v1/end", json={"only_unused": True})
        assert (refused.status_code, refused.json()["error"]) == (409, "claimed")
        assert (await box.exec("echo lives"))["stdout"] == "lives\n"


async def test_one_whose_caller_has_left_ends_unless_it_is_used(make) -> None:
    unused = await make(claim={"sandbox_id": "sb-one", "start_command": "sleep 100"})
    for body, field in (({"grace": 1}, "sandbox_id"), ({"sandbox_id": "sb-one"}, "grace")):
        bad = await unused.instance("POST", "/v1/orphan", json=body)
        assert (bad.status_code, bad.json()["field"]) == (400, field)
    another = await unused.instance("POST", "/v1/orphan", json={"sandbox_id": "sb-two", "grace": 0})
    assert (another.status_code, another.json()["error"]) == (409, "claimed")
    assert (await _left(unused, 600)).status_code == 200
    assert (await unused.instance("GET", "/v1/state")).json()["phase"] == "claimed"
    assert (await _left(unused, 0.01)).status_code == 200
    event = await unused.webhooks.wait("ended")
    assert event["verdict"] == "deleted"
    assert "did not come back" in event["message"]


@pytest.mark.parametrize("use", ["/v1/use", "/v1/exec", "/v1/reset"])
@pytest.mark.parametrize("before", [True, False])
async def test_one_that_is_used_outlives_its_caller_s_grace(make, use: str, before: bool) -> None:
    box = await make(claim={"sandbox_id": "sb-one"})
    if not before:
        await _left(box, 600)
    if use == "/v1/reset":
        assert (await box.instance("POST", use, json={"keep_claim": True})).status_code == 200
    else:
        assert (await box.call("POST", use, json={"command": "true"})).status_code == 200
    await _left(box, 0)
    refused = await box.instance("POST", "/v1/end", json={"only_unused": True})  # waits for what is under way
    assert refused.status_code == 409
    assert (await box.exec("echo lives"))["stdout"] == "lives\n"


async def _left(box, grace: float):
    return await box.instance("POST", "/v1/orphan", json={"sandbox_id": "sb-one", "grace": grace})


async def test_one_that_is_to_end_after_its_owner_is_reset_for_nobody_else(make) -> None:
    box = await make(claim={})
    alone = await box.instance("POST", "/v1/end", json={"after_owner": True})
    assert (alone.status_code, alone.json()["field"]) == (400, "after_owner")
    last = {"after_owner": True, "only_unclaimed": True}
    kept = await box.instance("POST", "/v1/end", json=last)
    assert (kept.status_code, kept.json()["phase"]) == (200, "claimed")
    assert (await box.instance("POST", "/v1/reset", json={"keep_claim": True})).status_code == 200
    await box.kill()
    await box.start()
    assert (await box.exec("echo lives"))["stdout"] == "lives\n"
    refused = await box.instance("POST", "/v1/reset", json={"keep_claim": False})
    assert (refused.status_code, refused.json()["error"]) == (409, "last_generation")
    free = await make()
    ended = await free.instance("POST", "/v1/end", json=last)
    assert (ended.status_code, ended.json()["phase"]) == (200, "ended")


@pytest.mark.parametrize("attempt", range(8))
async def test_a_claim_and_such_an_end_at_once_have_one_winner(make, attempt: int) -> None:
    box = await make()
    box.webhooks.answering.clear()  # it exits once its end is heard, and would be gone before the other request
    claim = box.instance("POST", "/v1/claim", json=box.claim_body(limits={"pids": 100 + attempt}))
    end = box.instance("POST", "/v1/end", json={"only_unclaimed": True})
    calls = [claim, end] if attempt % 2 else [end, claim]
    answers = await asyncio.gather(*calls)
    box.webhooks.answering.set()
    claimed, over = answers if attempt % 2 else reversed(answers)
    assert (claimed.status_code, over.status_code) in ((200, 409), (410, 200))
    if claimed.status_code == 200:
        assert (await box.exec("echo mine"))["stdout"] == "mine\n"
