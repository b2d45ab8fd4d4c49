"""A sidecar's part of a trace: ids in its log, timings in its answer, and nothing that a command could see."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from tests.sidecar.support import Sidecar

pytestmark = pytest.mark.root

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SAMPLED, UNSAMPLED = f"00-{TRACE}-00f067aa0ba902b7-01", f"00-{TRACE}-00f067aa0ba902b7-00"


async def exec_(box: Sidecar, traceparent: str, command: str, **headers: str) -> httpx.Response:
    body = {"command": command}
    answer = await box.call(
        "POST",
        "/v1/exec",
        json=body,
        headers={"traceparent": traceparent, "x-request-id": "r" * 999, **headers},
    )
    assert answer.status_code == 200, answer.text
    return answer


def timings(answer: httpx.Response) -> dict[str, float]:
    """Seconds by stage."""
    found = re.findall(r"(\w+);dur=([\d.]+)(?:, |$)", answer.headers["server-timing"])
    return {stage: float(value) / 1000 for stage, value in found}


def lines(box: Sidecar) -> list[dict[str, Any]]:
    return [json.loads(line) for line in box.log().splitlines() if TRACE in line]


async def test_a_sampled_command_is_timed_and_logged_with_its_trace(box: Sidecar) -> None:
    # Longer than what is asked for: its runner may look at its clock a moment after the command has begun.
    answer = await exec_(box, SAMPLED, "sleep 1; env; cat /proc/$PPID/environ /proc/1/environ 2>&1; true")
    assert TRACE not in answer.text
    took = timings(answer)
    assert list(took) == ["queue", "spawn", "run", "total"]
    assert took["run"] >= 0.1
    assert took["queue"] + took["spawn"] + took["run"] <= took["total"]
    (line,) = lines(box)
    assert line["event"] == "op_ended"
    assert (line["op"], line["verdict"]) == (answer.json()["op_id"], "exited")
    assert line["request"] == "r" * 128  # a client's own has no bound of its own here


async def test_a_repeat_is_timed_by_itself(box: Sidecar) -> None:
    first = timings(await exec_(box, SAMPLED, "sleep 0.1", **{"x-sandlot-op": "op-1"}))
    again = timings(await exec_(box, SAMPLED, "sleep 0.1", **{"x-sandlot-op": "op-1"}))
    assert set(first) == {"queue", "spawn", "run", "total"}
    assert set(again) == {"total"}


async def test_a_command_that_cannot_start_has_no_run(box: Sidecar) -> None:
    body = {"command": ["/no/such/program"]}
    answer = await box.call("POST", "/v1/exec", json=body, headers={"traceparent": SAMPLED})
    assert set(timings(answer)) == {"queue", "total"}


async def test_others_are_neither_timed_nor_logged(box: Sidecar) -> None:
    for value in (UNSAMPLED, "", "nonsense", SAMPLED.upper(), SAMPLED + "-x"):
        answer = await exec_(box, value, "true")
        assert "server-timing" not in answer.headers, value
    assert lines(box) == []
