"""What the grader makes of a sandbox that is gone, against a server that says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sandlot import AsyncClient
from sandlot_grade.errors import GradeError
from sandlot_grade.rollout import PROGRAM, Grader, Limits, key
from sandlot_grade.work import Outcome, Rollout

from tests.sdk.service.faults import Fault
from tests.sdk.service.server import Service

ROLLOUT = Rollout(index=0, task_id="t", kind="k", code="pass", test="", entry_point=None)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path) as running:
        yield running


async def grade(service: Service, *verdicts: str) -> Outcome:
    """A rollout whose first sandboxes are gone with these verdicts when its program is to run."""
    for verdict in verdicts:
        lost = {"error": "sandbox_not_found", "verdict": verdict, "message": f"gone: {verdict}"}
        service.faults.append(Fault("/exec", status=502, body=lost))
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        return await Grader(client=client, image="img").grade(ROLLOUT)


def ended(service: Service, *, code: int, message: str | None, stderr: str = "") -> None:
    """The next command ends by itself so."""
    usage = {"queued": 0.0, "wall": 0.01, "cpu": 0.004, "peak_memory": 9437184}
    end = {"op_id": "op", "state": "ended", "verdict": "exited", "exit_code": code, "signal": None}
    counts = {"stdout_bytes": 0, "stderr_bytes": 0, "truncated": False, "detached": False}
    document = {"stdout": "", "stderr": stderr, "message": message, "usage": usage, **end, **counts}
    service.faults.append(Fault("/exec", status=200, body=document))


@pytest.mark.parametrize("verdict", ["oom", "init_killed"])
async def test_the_end_of_a_sandbox_by_its_code_is_the_programs_result(
    service: Service, verdict: str
) -> None:
    outcome = await grade(service, verdict)
    assert (outcome.result, outcome.verdict, outcome.attempts, outcome.lost) == (verdict, verdict, 1, ())


async def test_the_end_of_a_sandbox_by_the_infrastructure_is_tried_again(service: Service) -> None:
    outcome = await grade(service, "node_lost", "oom")
    assert (outcome.result, outcome.attempts) == ("oom", 2)
    assert outcome.lost == ("SandboxLost: gone: node_lost",)


@pytest.mark.parametrize(
    ("code", "message"), [(127, "python3: command not found"), (126, "python3: permission denied")]
)
async def test_an_image_without_python_is_no_grade_but_stops_the_run(
    service: Service, code: int, message: str
) -> None:
    ended(service, code=code, message=message)
    with pytest.raises(GradeError) as caught:
        await grade(service)
    assert str(caught.value).startswith(f"cannot run programs in image 'img': {message}; ")
    assert "--image" in str(caught.value)


async def test_a_program_may_end_with_the_exit_code_of_a_missing_one(service: Service) -> None:
    ended(service, code=127, message=None)
    outcome = await grade(service)
    assert (outcome.result, outcome.exit_code) == ("failed", 127)


async def test_python_is_looked_for_once_and_not_where_the_program_ran(service: Service) -> None:
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        grader = Grader(client=client, image="img")
        for code in (127, 126):
            ended(service, code=code, message=None)
            outcome = await grader.grade(ROLLOUT)
            assert (outcome.result, outcome.exit_code) == ("failed", code)
    asked = [json.loads(seen.body)["command"] for seen in service.calls("/exec")]
    assert asked == [["python3", PROGRAM], ["python3", "-c", "pass"], ["python3", PROGRAM]]
    assert len({seen.path for seen in service.calls("/exec")}) == 3, "a sandbox each"
    assert {box["status"] for box in service.sandboxes.values()} == {"TERMINATED"}


async def test_a_python_that_is_a_script_for_a_missing_one_stops_the_run(service: Service) -> None:
    missing = "warning: slow\n/usr/bin/python3: 2: exec: python3.12: not found\n"
    for _ in range(2):  # the program, and what looks for python3
        ended(service, code=127, message=None, stderr=missing)
    with pytest.raises(GradeError) as caught:
        await grade(service)
    why = "python3 ends with exit code 127: /usr/bin/python3: 2: exec: python3.12: not found"
    assert str(caught.value).startswith(f"cannot run programs in image 'img': {why}; ")


def test_a_key_names_the_program_and_what_it_runs_in() -> None:
    def of(rollout: Rollout = ROLLOUT, **other: Any) -> str:
        return key(rollout, **{"limits": Limits(), "image": "host", "network": "none", **other})

    assert of() == of(replace(ROLLOUT, index=1, task_id="u", kind="l"))
    others = [
        of(replace(ROLLOUT, code="x")),
        of(replace(ROLLOUT, test="x")),
        of(replace(ROLLOUT, entry_point="x")),
        of(limits=Limits(timeout=1.0)),
        of(limits=Limits(memory=1 << 30)),
        of(image="img"),
        of(network="full"),
    ]
    assert len({of(), *others}) == 1 + len(others)
