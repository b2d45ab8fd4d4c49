"""What the status of a Sandbox or a pool says, and when it is written, without I/O."""

from __future__ import annotations

import msgspec
from sandlot_controller.plan import status
from sandlot_controller.plan.status import PoolCounts
from sandlot_kube.objects import SandboxPool
from sandlot_kube.verdicts import Verdict

from tests.controller.objects import pod, sandbox


def test_a_status_is_written_once() -> None:
    one, up = sandbox(), pod(phase="Running", podIP="10.0.0.1")
    patch = status.running(one, up, now=0.0)
    assert patch is not None
    told = sandbox(said=patch["status"])
    assert status.running(told, up, now=50.0) is None
    over = status.ended(told, Verdict("oom", "too much", 137), pod=up, now=60.0)
    assert over is not None
    assert over["status"]["endedAt"] == "1970-01-01T00:01:00Z"
    (condition,) = over["status"]["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "Ended", "oom")
    done = sandbox(said={**patch["status"], **over["status"]})
    assert status.ended(done, Verdict("deleted", ""), pod=None, now=70.0) is None


def test_a_condition_keeps_its_time_while_its_status_does() -> None:
    body = {"metadata": {"name": "p", "generation": 1}, "spec": {"template": {"image": "x"}, "size": 2}}
    pool = msgspec.convert(body, SandboxPool)
    first = status.pool(pool, PoolCounts(size=2, starting=2), now=0.0)
    assert first is not None
    assert status.urgent(pool, first)
    pool = msgspec.convert({**body, "status": first["status"]}, SandboxPool)
    assert status.pool(pool, PoolCounts(size=2, starting=2), now=9.0) is None
    counts = status.pool(pool, PoolCounts(size=2, starting=1, ready=1), now=9.0)
    assert counts == {"status": {"ready": 1, "starting": 1}}
    assert not status.urgent(pool, counts)
    full = status.pool(pool, PoolCounts(size=2, ready=2), now=9.0)
    assert full is not None
    assert status.urgent(pool, full)
    filled = msgspec.convert({**body, "status": {**first["status"], **full["status"]}}, SandboxPool)
    claimed = status.pool(filled, PoolCounts(size=2, ready=1, claimed=1), now=9.0)
    assert claimed is not None
    assert not status.urgent(filled, claimed)
    failing = status.pool(pool, PoolCounts(size=2, failures=1, message="x"), now=9.0)
    assert failing is not None
    assert status.urgent(pool, failing)
    assert failing["status"]["conditions"][0]["lastTransitionTime"] == "1970-01-01T00:00:00Z"
