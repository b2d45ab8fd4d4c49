"""Claims, deadlines, ends, resets and restarts of an instance, over the real surface."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.policies import skip_without_egress_policies
from tests.sidecar.processes import gone
from tests.sidecar.support import SANDBOX_TOKEN, Sidecar, parse_frames
from tests.sidecar.webhook_receiver import INSTANCE_TOKEN
from tests.waiting import until

pytestmark = pytest.mark.root


def there(path: str) -> bool:
    return Path(path).exists()


def text_of(path: str) -> str:
    return Path(path).read_text()


async def test_a_claim_with_less_memory_can_be_reset(make) -> None:
    """Its /dev/shm is smaller than it was when the sandbox was made, which is no leftover."""
    box = await make(claim={"limits": {"memory": 128 << 20}})
    answer = await box.instance("POST", "/v1/reset", json={"keep_claim": True})
    assert answer.json()["equal"] is True, answer.text
    assert (await box.exec("df -k /dev/shm | tail -1 | tr -s ' ' | cut -d' ' -f2"))["stdout"] == "19664\n"


async def test_a_reset_for_one_owner_never_meets_the_next(make) -> None:
    """It may be late, and by then the instance has been reset and claimed again."""
    box = await make(claim={})
    late = {"keep_claim": False, "generation": 1}
    assert (await box.instance("POST", "/v1/reset", json=late)).json()["generation"] == 2
    answer = await box.instance("POST", "/v1/reset", json=late)
    assert (answer.status_code, answer.json()["error"]) == (409, "stale_generation")
    assert (await box.instance("GET", "/v1/state")).json()["generation"] == 2


async def test_ready_comes_after_a_command_has_run(make) -> None:
    box = await make()
    event = await box.webhooks.wait("ready")
    assert event["signed"]
    assert event["headers"]["X-Sandlot-Instance"] == box.config["instance_id"]
    assert (event["phase"], event["generation"], event["template"]) == ("warm", 1, "t-test")
    assert event["address"] == f"unix:{box.socket}"
    assert (await box.client.get("/healthz")).json() == {"status": "ok"}
    metrics = (await box.instance("GET", "/v1/metrics")).text
    assert 'sandlot_sidecar_ops_total{verdict="exited"} 1' in metrics


async def test_nothing_is_ready_when_no_command_can_run(make) -> None:
    box = Sidecar(root={"lower": ["/proc/empty-of-everything"]})
    await box.webhooks.start()
    await box.launch()
    event = await box.webhooks.wait("ended")
    assert (event["verdict"], event["phase"]) == ("start_failed", "failed")
    assert not [item for item in box.webhooks.events if item["event"] == "ready"]
    await box.close()


async def test_socket_and_config_are_private(make) -> None:
    box = await make(claim={})
    assert os.stat(box.socket).st_mode & 0o777 == 0o600
    assert os.stat(f"{box.directory}/claim.json").st_mode & 0o777 == 0o600
    assert not there(f"{box.directory}/config.json")


async def test_state_document(make) -> None:
    box = await make()
    warm = (await box.instance("GET", "/v1/state")).json()
    assert set(warm) == {
        "instance_id", "address", "generation", "phase", "version", "sandbox_id", "claimed_at", "deadline_at", "idle_timeout",
        "ready_at", "last_active_at", "verdict", "message", "meta", "ops_running", "template", "notes", "restoring",
        "start_command", "egress",
    }  # fmt: skip
    assert warm["start_command"] == {"state": "none", "exit_code": None}
    assert 0 <= time.time() - warm["ready_at"] < 60
    state = await box.claim(timeout=100, idle_timeout=50, meta={"name": "n"})
    assert (state["phase"], state["sandbox_id"], state["meta"]) == ("claimed", "sb-test", {"name": "n"})
    assert state["deadline_at"] == pytest.approx(state["claimed_at"] + 100)
    assert state["idle_timeout"] == 50
    assert (await box.call("GET", "/v1/state")).status_code == 200


async def test_the_first_claim_wins(make) -> None:
    box = await make()
    bodies = [box.claim_body(sandbox_id=f"sb-{number}", token=f"token-{number}") for number in range(8)]
    answers = await asyncio.gather(*(box.instance("POST", "/v1/claim", json=body) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
    winner = next(number for number, answer in enumerate(answers) if answer.status_code == 200)
    persisted = json.loads(text_of(f"{box.directory}/claim.json"))
    assert persisted["claim"]["sandbox_id"] == f"sb-{winner}"
    for number, answer in enumerate(answers):
        if number != winner:
            assert answer.json()["error"] == "already_claimed"
            assert answer.json()["sandbox_id"] == f"sb-{winner}"
    again = await box.instance("POST", "/v1/claim", json=bodies[winner])
    assert (again.status_code, again.json()["sandbox_id"]) == (200, f"sb-{winner}")
    changed = await box.instance("POST", "/v1/claim", json={**bodies[winner], "env": {"A": "b"}})
    assert changed.status_code == 409
    stranger = await box.instance("POST", "/v1/claim", json=box.claim_body(tenant="tenant-b", sandbox_id="x"))
    assert stranger.status_code == 409
    assert "sandbox_id" not in stranger.json()
    assert len([event for event in box.webhooks.events if event["event"] == "claimed"]) <= 1


async def test_generation_must_be_the_instances(make) -> None:
    box = await make()
    stale = await box.instance("POST", "/v1/claim", json=box.claim_body(generation=2))
    assert (stale.status_code, stale.json()["error"]) == (409, "stale_generation")
    assert (await box.claim(generation=1))["generation"] == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sandbox_id", 7), ("sandbox_id", ""), ("token", None), ("env", {"A": 1}), ("env", {"A=B": "x"}), ("env", []),
        ("secrets", {"": "x"}), ("limits", {"cpu": 0}), ("limits", {"memory": "1"}), ("limits", {"pids": -1}),
        ("network", "some"), ("timeout", -1), ("timeout", "1"), ("idle_timeout", 0), ("workdir", "relative"),
        ("start_command", []), ("start_command", [""]), ("start_command", 5), ("meta", 3), ("generation", "1"),
    ],
)  # fmt: skip
async def test_bad_claims_name_the_field(make, field: str, value: object) -> None:
    box = await make()
    answer = await box.instance("POST", "/v1/claim", json={**box.claim_body(), field: value})
    assert answer.status_code == 400, answer.text
    assert answer.json()["field"].startswith(field)


async def test_tokens_open_only_what_is_theirs(make) -> None:
    box = await make()
    assert (await box.call("POST", "/v1/exec", json={"command": "true"})).json()["error"] == "not_claimed"
    await box.claim()
    for token in (INSTANCE_TOKEN, "wrong", SANDBOX_TOKEN[:-1], SANDBOX_TOKEN + "x"):
        answer = await box.client.post(
            "/v1/exec", json={"command": "true"}, headers={"Authorization": f"Bearer {token}"}
        )
        assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
    for route in ("claim", "end", "reset"):
        assert (await box.call("POST", f"/v1/{route}", json={})).status_code == 401
    assert (await box.call("GET", "/v1/metrics")).status_code == 401
    assert (await box.client.post("/v1/exec", json={"command": "true"})).status_code == 401


async def test_start_command_and_logs(make) -> None:
    box = await make(claim={"start_command": "echo up; echo bad >&2; read never; exit 3"})
    await until(lambda: logs(box, "all", "up\nbad\n"))
    assert (await box.call("GET", "/v1/logs?stream=stderr")).text == "bad\n"
    assert (await box.call("GET", "/v1/logs?stream=stdout&tail=2")).text == "p\n"
    await until(lambda: started(box, {"state": "ended", "exit_code": 3}))
    assert (await box.exec("echo usable"))["stdout"] == "usable\n"


async def logs(box: Sidecar, stream: str, wanted: str) -> bool:
    return (await box.call("GET", f"/v1/logs?stream={stream}")).text == wanted


async def started(box: Sidecar, wanted: dict[str, object]) -> bool:
    return (await box.call("GET", "/v1/state")).json()["start_command"] == wanted


async def test_start_command_as_argv_shares_the_sandbox(make) -> None:
    box = await make(claim={"start_command": ["sh", "-c", "echo $$ > /tmp/a; echo $0 $1", "zero", "a b"]})
    await until(lambda: logs(box, "stdout", "zero a b\n"))
    assert (await box.exec("test -s /tmp/a && echo there"))["stdout"] == "there\n"


async def test_only_the_last_mebibyte_of_the_start_commands_output_is_kept(make) -> None:
    box = await make(claim={"start_command": "head -c 3000000 /dev/zero | tr '\\0' x; echo end"})
    await until(lambda: started(box, {"state": "ended", "exit_code": 0}))
    text = (await box.call("GET", "/v1/logs")).text
    assert (1 << 20) - 4 <= len(text) <= 1 << 20
    assert text.endswith("xend\n")


async def test_deadline(make) -> None:
    box = await make(claim={"timeout": 3.0})
    op = await box.op("sleep 30", wait=0, detach=True)
    assert op["state"] in ("running", "queued")
    event = await box.webhooks.wait("ended")
    assert event["verdict"] == "deadline"
    assert await box.wait_exit() == 0
    assert not there(box.socket)


async def test_idle_timeout_counts_from_the_last_use(make) -> None:
    box = await make(claim={"idle_timeout": 2})
    for _ in range(4):
        await asyncio.sleep(0.6)  # four of these are longer than the idle timeout
        await box.exec("true")
    await box.exec("sleep 2.5")
    state = (await box.call("GET", "/v1/state")).json()
    event = await box.webhooks.wait("ended")
    assert event["verdict"] == "idle"
    assert event["sent_at"] - state["last_active_at"] >= 1.95
    assert await box.wait_exit() == 0


async def test_end_kills_and_refuses(make) -> None:
    box = await make(claim={})
    await box.webhooks.wait("claimed")
    box.webhooks.statuses = [503, 503]
    running = asyncio.create_task(box.exec("sleep 30", op="runs"))
    await until(lambda: running_ops(box, 1))
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
    assert await box.wait_exit() == 0
    events = [event for event in box.webhooks.events if event["event"] == "ended"]
    assert [event["answered"] for event in events] == [503, 503, 200]
    assert events[1]["received_at"] - events[0]["received_at"] >= 0.03


async def works(box: Sidecar) -> bool:
    return (await box.call("POST", "/v1/exec", json={"command": "true"})).status_code == 200


async def running_ops(box: Sidecar, number: int) -> bool:
    return (await box.call("GET", "/v1/state")).json()["ops_running"] == number


async def test_verdict_of_an_end_is_checked(make) -> None:
    box = await make()
    answer = await box.instance("POST", "/v1/end", json={"verdict": "because"})
    assert (answer.status_code, answer.json()["field"]) == (400, "verdict")


async def test_ready_is_repeated_until_it_is_heard(make) -> None:
    box = Sidecar()
    box.webhooks.statuses = [500, 503, 404]
    await box.webhooks.start()
    await box.launch()
    await box.webhooks.wait("ready", count=4)
    assert [event["answered"] for event in box.webhooks.events] == [500, 503, 404, 200]
    await box.close()


async def test_an_instance_that_nobody_wants_ends_itself(make) -> None:
    box = Sidecar()
    box.webhooks.statuses = [410]
    await box.webhooks.start()
    await box.launch()
    assert await box.wait_exit() == 0
    await box.close()


async def test_an_instance_that_was_claimed_since_it_told_that_it_is_nobodys_goes_on(make) -> None:
    box = Sidecar(heartbeat=0.2)
    box.webhooks.statuses = [410]
    box.webhooks.answering.clear()
    await box.webhooks.start()
    await box.launch()
    assert (await box.webhooks.wait("ready"))["sandbox_id"] is None
    await box.claim()
    box.webhooks.answering.set()
    assert (await box.webhooks.wait("heartbeat", count=2))["phase"] == "claimed"
    box.webhooks.statuses = [410]  # this one is about its owner
    assert (await box.webhooks.wait("ended"))["verdict"] == "deleted"
    assert await box.wait_exit() == 0
    await box.close()


@pytest.mark.parametrize(
    ("told", "of_the_sandbox", "of_the_command"),
    [
        ("evicted", "evicted", "evicted"),
        ("node_lost", "node_lost", "sandbox_broken"),
        ("deadline", "deadline", "sandbox_ended"),
        ("no such verdict", "deleted", "sandbox_ended"),
        (None, "deleted", "sandbox_ended"),
    ],
)
async def test_one_that_is_told_how_its_sandbox_has_ended_tells_its_commands(
    make, told, of_the_sandbox, of_the_command
) -> None:
    box = await make(heartbeat=0.2, claim={})
    await box.op("sleep 60", id="runs", detach=True)

    async def runs() -> bool:
        return (await box.call("GET", "/v1/ops/runs")).json()["state"] == "running"

    await until(runs)
    async with box.stream("GET", "/v1/ops/runs/stream") as stream:
        box.webhooks.verdict = told
        box.webhooks.statuses = [410]
        assert (await box.webhooks.wait("ended"))["verdict"] == of_the_sandbox
        kind, end = parse_frames(await stream.aread())[-1]
    assert (kind, json.loads(end)["verdict"]) == ("x", of_the_command)
    assert await box.wait_exit() == 0


async def test_a_heartbeat_repeats_the_state(make) -> None:
    box = await make(heartbeat=0.2, claim={})
    beat = (await box.webhooks.wait("heartbeat", count=2))["phase"]
    assert beat == "claimed"


async def test_sigterm_ends_in_order(make) -> None:
    box = await make(claim={})
    assert box.process is not None
    box.process.terminate()
    event = await box.webhooks.wait("ended")
    assert event["verdict"] == "evicted"
    assert await box.wait_exit() == 0
    assert not there(box.socket)


async def test_reset_is_fresh_again(make) -> None:
    box = await make(claim={"env": {"OLD": "1"}})
    await box.exec(
        "echo x > /root/trace; mkdir -p /var/spool/cron; echo y > /etc/passwd; sleep 99 &", op="before"
    )
    answer = await box.instance("POST", "/v1/reset", json={})
    document = answer.json()
    assert answer.status_code == 200, answer.text
    assert document["equal"] is True
    assert document["proof"]["processes"] == []
    assert document["proof"]["upper_entries"] == 0
    assert (document["generation"], document["phase"], document["sandbox_id"]) == (2, "warm", None)
    assert document["took_ms"] > 0
    event = await box.webhooks.wait("ready", count=2)
    assert event["generation"] == 2
    assert (await box.call("POST", "/v1/exec", json={"command": "true"})).status_code == 409
    box.token = "another-token"
    await box.claim(sandbox_id="sb-2", generation=2)
    result = await box.exec("ls /root/trace; grep -c root /etc/passwd; echo [$OLD]", op="before")
    assert "[]" in result["stdout"]
    assert "No such file" in result["stderr"]
    assert int(result["stdout"].split()[0]) >= 1


async def test_reset_that_keeps_the_claim(make) -> None:
    box = await make(claim={"env": {"K": "v"}, "start_command": "echo started >> /tmp/starts"})
    await box.exec("echo x > /tmp/trace")
    document = (await box.instance("POST", "/v1/reset", json={"keep_claim": True})).json()
    assert (document["phase"], document["sandbox_id"], document["generation"]) == ("claimed", "sb-test", 1)
    assert (await box.exec("ls /tmp/trace; echo $K"))["stdout"] == "v\n"


async def test_an_end_that_is_none_of_the_command_s_is_no_result_for_who_knows_no_verdicts(make) -> None:
    box = await make(claim={})
    first = asyncio.create_task(box.call("POST", "/v1/exec", json={"command": "echo out; sleep 30"}))
    await until(lambda: running_ops(box, 1))
    (init,) = (pid for pid in box.tree() if name_of(pid).endswith("init"))
    os.kill(init, 9)
    broken = (await first).json()
    assert ((await first).status_code, broken["error"], broken["may_have_run"]) == (
        502,
        "sandbox_broken",
        True,
    )
    assert broken["message"]
    await until(lambda: works(box))  # a command in the moment of the change is lost, too
    second = asyncio.create_task(box.call("POST", "/v1/exec", json={"command": "sleep 30"}))
    await until(lambda: running_ops(box, 1))
    await box.instance("POST", "/v1/end", json={"verdict": "deadline", "message": "its time is over"})
    ended = (await second).json()
    assert ((await second).status_code, ended["error"], ended["verdict"]) == (410, "ended", "deadline")
    assert ended["message"] == "its time is over"


async def test_reset_ends_what_runs(make) -> None:
    box = await make(claim={})
    running = asyncio.create_task(box.exec("sleep 30", op="runs"))
    await until(lambda: running_ops(box, 1))
    await box.instance("POST", "/v1/reset", json={"keep_claim": True})
    assert (await running)["verdict"] == "sandbox_ended"
    assert (await box.exec("echo on"))["stdout"] == "on\n"


async def test_network_none(make) -> None:
    box = await make(claim={"network": "none"})
    answer = await box.exec("cat /proc/net/dev; ls /sys/class/net 2>/dev/null")
    assert "eth" not in answer["stdout"]
    refused = await box.exec("python3 -c \"import socket; socket.create_connection(('1.1.1.1', 53), 2)\"")
    assert refused["exit_code"] != 0


async def test_a_killed_server_finds_its_claim_and_says_what_was_lost(make) -> None:
    box = await make(claim={"env": {"KEPT": "yes"}})
    await box.exec("true", op="finished")
    await box.op("echo side >> /tmp/x; sleep 60", id="running", detach=True)
    tree = box.tree() - {box.pid}
    await box.kill()
    await gone(tree)
    await box.start()
    state = (await box.call("GET", "/v1/state")).json()
    assert (state["phase"], state["sandbox_id"]) == ("claimed", "sb-test")
    lost = (await box.call("GET", "/v1/ops/running")).json()
    assert (lost["state"], lost["verdict"]) == ("ended", "sidecar_lost")
    retried = await box.exec("echo side >> /tmp/x; sleep 60", op="running")
    assert retried["verdict"] == "sidecar_lost"
    finished = await box.call(
        "POST", "/v1/exec", json={"command": "true"}, headers={"X-Sandlot-Op": "finished"}
    )
    assert finished.status_code == 410
    assert (await box.exec("echo $KEPT"))["stdout"] == "yes\n"
    other = await box.instance("POST", "/v1/claim", json=box.claim_body(sandbox_id="sb-thief"))
    assert other.status_code == 409


async def test_a_lost_executor_ends_the_sandbox_and_is_not_the_code_s_fault(make) -> None:
    box = await make(claim={})
    async with box.stream("POST", "/v1/ops", json={"command": "echo up; sleep 60"}) as answer:
        frames = answer.aiter_raw()
        received = b""
        while b"up\n" not in received:
            received += await anext(frames)
        os.kill(box.executor_pid(), 9)
        received += b"".join([part async for part in frames])
    assert json.loads(parse_frames(received)[-1][1])["verdict"] == "sandbox_broken"
    event = await box.webhooks.wait("ended")
    assert event["verdict"] == "sandbox_lost"
    assert await box.wait_exit() == 0


async def test_an_init_that_dies_again_and_again_is_given_up(make) -> None:
    """Linux lets no code kill it, so whoever does it is not in the sandbox."""
    box = await make(claim={})
    killed: set[int] = set()

    async def another() -> bool:
        found = {pid for pid in box.tree() - killed if name_of(pid).endswith("init")}
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        killed.update(found)
        return len(killed) == 6

    await until(another)
    assert (await box.webhooks.wait("ended"))["verdict"] == "sandbox_lost"
    assert await box.wait_exit() == 0


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


async def test_a_reset_takes_the_owner_s_limits_and_network_away(make) -> None:
    box = await make(claim={"limits": {"memory": 64 << 20, "pids": 20, "disk": 1 << 20}, "network": "none"})
    look = (
        "df -B1 --output=size / | tail -1; readlink /proc/self/ns/net; "
        "for i in $(seq 30); do sleep 1 & done; wait; echo forked"
    )
    shared = os.readlink("/proc/self/ns/net")  # the machine's, in which others make devices meanwhile
    first = (await box.exec(look, shell="sh"))["stdout"].split()
    assert (int(first[0]) <= 1 << 20, first[1] == shared, "forked" in first) == (True, False, False)
    answer = await box.instance("POST", "/v1/reset", json={"keep_claim": False})
    assert answer.json()["equal"] is True, answer.text
    await box.claim()
    second = (await box.exec(look, shell="sh"))["stdout"].split()
    assert int(second[0]) == 64 << 20
    assert second[1] == shared
    assert second[-1] == "forked"
    answer = await box.instance("POST", "/v1/reset", json={"keep_claim": False})
    await box.claim(limits={"disk": 2 << 20}, network="none")
    answer = await box.instance("POST", "/v1/reset", json={"keep_claim": True})
    third = (await box.exec(look, shell="sh"))["stdout"].split()
    assert (int(third[0]) <= 2 << 20, third[1] == shared, third[-1]) == (True, False, "forked")


async def test_no_state_tells_of_an_owner_before_the_claim_is_in_force(make) -> None:
    """Limits and a network of its own make the claim wait for the executor."""
    told: set[tuple[str, str | None, bool]] = set()

    async def watch(box: Sidecar) -> None:
        while True:
            state = (await box.instance("GET", "/v1/state")).json()
            told.add((state["phase"], state["sandbox_id"], state["claimed_at"] is not None))
            if state["phase"] == "claimed":
                return

    for attempt in range(5):
        box = await make()
        watching = [asyncio.create_task(watch(box)) for _ in range(4)]
        await box.claim(limits={"pids": 100 + attempt}, network="none")
        await asyncio.gather(*watching)
    assert told <= {("warm", None, False), ("claimed", "sb-test", True)}


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
    assert (await owned.exec("echo lives"))["stdout"] == "lives\n"
    for box in (owned, await make()):
        ended = await box.instance("POST", "/v1/end", json={"only_of": "sb-one"})
        assert (ended.status_code, ended.json()["phase"]) == (200, "ended")


@pytest.mark.parametrize("attempt", range(8))
async def test_a_claim_and_such_an_end_at_once_have_one_winner(make, attempt: int) -> None:
    box = await make()
    claim = box.instance("POST", "/v1/claim", json=box.claim_body(limits={"pids": 100 + attempt}))
    end = box.instance("POST", "/v1/end", json={"only_unclaimed": True})
    calls = [claim, end] if attempt % 2 else [end, claim]
    answers = await asyncio.gather(*calls)
    claimed, over = answers if attempt % 2 else reversed(answers)
    assert (claimed.status_code, over.status_code) in ((200, 409), (410, 200))
    if claimed.status_code == 200:
        assert (await box.exec("echo mine"))["stdout"] == "mine\n"


async def test_a_reset_without_the_claim_takes_its_policy_away(make) -> None:
    box = await make(claim={})
    policy = {"policy": {"allowlist": []}, "allow": True, "rules": []}
    held = await box.instance("PUT", "/v1/egress", json=policy)
    skip_without_egress_policies()
    assert held.status_code == 200, held.text
    reach = "import socket; socket.create_connection(('192.0.2.1', 9), timeout=0.2)"
    for keep in (True, False):
        assert (await box.instance("POST", "/v1/reset", json={"keep_claim": keep})).json()["equal"] is True
        if not keep:
            await box.claim()
        seen = await box.exec(["python3", "-c", reach])
        assert ("PermissionError" in seen["stderr"]) is keep
    assert (await box.instance("GET", "/v1/egress")).json() == {"policy": None, "generation": 1}
