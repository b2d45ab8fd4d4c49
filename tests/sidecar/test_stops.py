"""How a start command is stopped: by its signal, within its grace, whatever it does with either."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.processes import command_line
from tests.sidecar.stopping import IGNORES, end, is_up, stopping, traps
from tests.sidecar.support import Sidecar
from tests.waiting import until, until_empty

pytestmark = pytest.mark.root


async def running(make: Any, command: str | list[str], **fields: Any) -> Sidecar:
    """A sandbox whose start command has set its traps."""
    box = await make(claim={"start_command": command, **fields})
    await until(lambda: is_up(box))
    return box


@pytest.mark.parametrize(
    ("signal", "fields"),
    [
        ("TERM", {}),
        ("QUIT", {"stop_signal": "SIGQUIT"}),
        ("QUIT", {"stop_signal": "3"}),
        ("USR1", {"stop_signal": 10}),
        ("RTMIN+3", {"stop_signal": "SIGRTMIN+3"}),
    ],
)
async def test_an_end_sends_the_stop_signal_and_waits(make, signal: str, fields: dict[str, Any]) -> None:
    command = ["bash", "-c", traps(signal, "sleep 0.2; exit 7")]
    box = await running(make, command, stop_grace=5.0, **fields)
    state = await end(box)
    assert (state["phase"], state["verdict"]) == ("ended", "deleted")
    event = await box.webhooks.wait("ended")
    assert event["start_command"] == {"state": "ended", "exit_code": 7}
    assert await box.wait_exit() == 0


async def test_one_that_ignores_it_is_killed_at_its_grace(make) -> None:
    box = await running(make, IGNORES, stop_grace=0.4)
    began = time.time()
    assert (await end(box))["start_command"] == {"state": "stopping", "exit_code": None}
    event = await box.webhooks.wait("ended")
    assert event["sent_at"] - began >= 0.4
    assert event["start_command"] == {"state": "ended", "exit_code": None}
    assert await box.wait_exit() == 0


async def test_the_signal_is_for_the_commands_own_process(make) -> None:
    # A main process that ends takes along what it has started, as in a container.
    box = await running(make, f'sh -c "{traps("TERM", "exit 9")}" & wait; exit 3', stop_grace=5.0)
    await end(box)
    event = await box.webhooks.wait("ended")
    assert event["start_command"] == {"state": "ended", "exit_code": 143}


def sleepers(box: Sidecar) -> list[int]:
    return [pid for pid in box.tree() if command_line(pid).split(b"\0")[:2] == [b"sleep", b"600.25"]]


async def is_queued(box: Sidecar, op_id: str) -> bool:
    return (await box.call("GET", f"/v1/ops/{op_id}")).json().get("state") == "queued"


def released(box: Sidecar) -> bool:
    """Whether a file that the start command waits for has been made."""
    for pid in box.tree():
        if b"trap" in command_line(pid):
            with suppress(OSError):  # a child of it that has not yet become its program may be gone
                Path(f"/proc/{pid}/root/released").touch()
                return True
    return False


async def test_other_commands_end_at_once_and_none_begins(make) -> None:
    # The one that is queued would leave this file, the sandbox's end take it along.
    waits = "until test -e /released; do sleep 0.05; done; test -e /begun && exit 8; exit 7"
    looks = traps("TERM", waits)
    box = await make(claim={"start_command": looks, "stop_grace": 5.0}, ops={"max_running": 2})
    await until(lambda: is_up(box))
    other = asyncio.create_task(
        box.frames("/v1/ops", method="POST", json={"command": "sleep 600.25", "id": "other"})
    )
    await until(lambda: sleepers(box))
    queued = asyncio.create_task(
        box.frames("/v1/ops", method="POST", json={"command": "touch /begun", "id": "queued"})
    )
    await until(lambda: is_queued(box, "queued"))
    box.webhooks.answering.clear()  # it exits once its end is heard, and would be gone before the last request
    assert (await end(box))["start_command"]["state"] == "stopping"
    ends = [json.loads(frames[-1][1]) for frames in (await other, await queued)]
    assert [each["verdict"] for each in ends] == ["sandbox_ended"] * 2
    await until_empty(lambda: sleepers(box))
    refused = await box.call("POST", "/v1/exec", json={"command": "true"})
    assert (refused.status_code, refused.json()["error"]) == (410, "ended")
    again = await end(box, verdict="idle")  # and does not cut the grace
    assert (again["verdict"], again["start_command"]["state"]) == ("deleted", "stopping")
    await until(lambda: released(box), seconds=5.0)
    box.webhooks.answering.set()
    event = await box.webhooks.wait("ended")
    assert event["start_command"]["exit_code"] == 7


async def test_no_webhook_comes_during_the_grace(make) -> None:
    box = await make(
        claim={"start_command": traps("TERM", "sleep 2; exit 7"), "stop_grace": 5.0}, heartbeat=0.2
    )
    await until(lambda: is_up(box))
    await box.webhooks.wait("heartbeat")
    await end(box)
    await box.webhooks.wait("ended")
    assert [event["event"] for event in box.webhooks.events if event["phase"] == "ended"] == ["ended"]


@pytest.mark.parametrize("times", [{"timeout": 8.0}, {"idle_timeout": 5.0}])
async def test_so_does_a_timeout(make, times: dict[str, float]) -> None:
    box = await running(make, traps("TERM", "exit 7"), stop_grace=5.0, **times)
    event = await box.webhooks.wait("ended")
    assert event["verdict"] == ("deadline" if "timeout" in times else "idle")
    assert event["start_command"] == {"state": "ended", "exit_code": 7}


@pytest.mark.parametrize("verdict", ["sandbox_lost", "evicted", "given_back", "reset_failed"])
async def test_an_end_for_another_reason_waits_for_nothing(make, verdict: str) -> None:
    box = await running(make, traps("TERM", "exit 7"), stop_grace=5.0)
    assert (await end(box, verdict))["start_command"] == {"state": "ended", "exit_code": None}


async def test_without_a_grace_it_is_killed(make) -> None:
    box = await running(make, traps("TERM", "exit 7"), stop_grace=0)
    assert (await end(box))["start_command"] == {"state": "ended", "exit_code": None}


async def test_one_that_has_ended_is_not_waited_for(make) -> None:
    box = await make(claim={"start_command": "exit 3", "stop_grace": 5.0})

    async def ended() -> bool:
        return (await box.instance("GET", "/v1/state")).json()["start_command"]["state"] == "ended"

    await until(ended)
    assert (await end(box))["start_command"] == {"state": "ended", "exit_code": 3}


async def test_sigterm_leaves_it_the_rest_of_its_grace(make) -> None:
    """A pod that is deleted during the grace has the time for it."""
    box = await running(make, traps("TERM", "sleep 1; exit 7"), stop_grace=5.0)
    await end(box)
    assert box.process is not None
    box.process.terminate()
    event = await box.webhooks.wait("ended")
    assert (event["verdict"], event["start_command"]["exit_code"]) == ("deleted", 7)
    assert await box.wait_exit() == 0


@pytest.mark.parametrize("keep_claim", [True, False])
async def test_a_reset_stops_it_likewise(make, keep_claim: bool) -> None:
    box = await running(make, traps("TERM", "sleep 0.5; exit"), stop_grace=5.0)
    began = time.monotonic()
    answer = await box.instance("POST", "/v1/reset", json={"keep_claim": keep_claim})
    assert time.monotonic() - began >= 0.5
    assert (answer.status_code, answer.json()["equal"]) == (200, True)
    if keep_claim:
        await until(lambda: is_up(box))
    else:
        assert answer.json()["start_command"] == {"state": "none", "exit_code": None}


async def test_a_reset_kills_one_that_ignores_it(make) -> None:
    box = await running(make, IGNORES, stop_grace=0.4)
    answer = await box.instance("POST", "/v1/reset", json={})
    assert (answer.status_code, answer.json()["equal"], answer.json()["generation"]) == (200, True, 2)
    await box.claim(sandbox_id="sb-next", token="next")
    assert (await box.instance("GET", "/v1/state")).json()["start_command"]["state"] == "none"


@pytest.mark.alone
async def test_an_end_does_not_wait_for_the_grace_of_a_reset(make) -> None:
    box = await running(make, IGNORES, stop_grace=5.0)
    reset = asyncio.create_task(box.instance("POST", "/v1/reset", json={"keep_claim": True}))
    await until(lambda: stopping(box))
    began = time.monotonic()
    await end(box)
    assert time.monotonic() - began < 4.0
    await box.webhooks.wait("ended")
    assert (await reset).status_code == 200


async def test_an_end_that_does_not_apply_does_not_cut_the_grace_of_a_reset(make) -> None:
    box = await running(make, IGNORES, stop_grace=5.0)
    began = time.monotonic()
    reset = asyncio.create_task(box.instance("POST", "/v1/reset", json={"keep_claim": True}))
    await until(lambda: stopping(box))
    for conditions in ({"only_of": "sb-another"}, {"only_unclaimed": True}):
        body = {"verdict": "deleted", **conditions}
        assert (await box.instance("POST", "/v1/end", json=body)).status_code == 409
    assert (await reset).status_code == 200
    assert time.monotonic() - began >= 5.0


def forget_fields(path: Path) -> None:
    record = json.loads(path.read_text())
    del record["claim"]["stop_signal"], record["claim"]["stop_grace"]
    path.write_text(json.dumps(record))


async def test_a_claim_of_an_earlier_version_stops_by_sigterm(make) -> None:
    box = await running(make, traps("TERM", "exit 7"))
    await box.kill()
    forget_fields(Path(box.directory, "claim.json"))
    await box.start()
    await until(lambda: is_up(box))
    await end(box)
    assert (await box.webhooks.wait("ended"))["start_command"] == {"state": "ended", "exit_code": 7}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop_signal", "SIGNOPE"),
        ("stop_signal", 0),
        ("stop_signal", 65),
        ("stop_signal", ""),
        ("stop_signal", ["SIGTERM"]),
        ("stop_grace", -1),
        ("stop_grace", 5.1),
        ("stop_grace", "1"),
    ],
)
async def test_its_fields_are_checked(make, field: str, value: Any) -> None:
    box = await make()
    answer = await box.instance("POST", "/v1/claim", json=box.claim_body(**{field: value}))
    assert (answer.status_code, answer.json()["field"]) == (400, field)
