"""What the grader makes of a sandbox that is gone, against a server that says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import AsyncClient
from sandlot_grade.rollout import Grader
from sandlot_grade.work import Outcome, Rollout

from tests.sdk.service import Fault, Service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path) as running:
        yield running


async def grade(service: Service, *verdicts: str) -> Outcome:
    """A rollout whose first sandboxes are gone with these verdicts when its program is to run."""
    for verdict in verdicts:
        lost = {"error": "sandbox_not_found", "verdict": verdict, "message": f"gone: {verdict}"}
        service.faults.append(Fault("/exec", status=502, body=lost))
    rollout = Rollout(index=0, task_id="t", kind="k", code="pass", test="", entry_point=None)
    async with AsyncClient(url=service.url, api_key=service.api_key) as client:
        return await Grader(client=client).grade(rollout)


async def test_the_end_of_a_sandbox_by_its_own_memory_is_the_programs_result(service: Service) -> None:
    outcome = await grade(service, "oom")
    assert (outcome.result, outcome.verdict, outcome.attempts, outcome.lost) == ("oom", "oom", 1, ())


async def test_the_end_of_a_sandbox_by_the_infrastructure_is_tried_again(service: Service) -> None:
    outcome = await grade(service, "node_lost", "oom")
    assert (outcome.result, outcome.attempts) == ("oom", 2)
    assert outcome.lost == ("SandboxLost: gone: node_lost",)
