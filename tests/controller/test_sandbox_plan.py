"""What a Sandbox needs next, without I/O: a pod, an end, a word in its status, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sandlot_controller.plan import sandboxes, status
from sandlot_controller.plan.pod_life import Diagnosis, PodFacts, diagnose
from sandlot_controller.plan.sandboxes import (
    Create,
    DeleteDuplicate,
    End,
    EndUnlessPod,
    Facts,
    ReportStarting,
    ReportWaiting,
    Run,
)
from sandlot_controller.settings import Settings
from sandlot_kube import verdicts
from sandlot_kube.objects import Pod, Sandbox
from sandlot_kube.verdicts import Verdict

from tests.controller.objects import pod, sandbox

SETTINGS = Settings(
    namespace="sandboxes", key_file=Path("/none"), webhook_url="http://g/internal/sidecar", sidecar_image="s"
)


def step(
    one: Sandbox,
    *,
    pod: Pod | None = None,
    of_pod: dict[str, float] | None = None,
    now: float = 100.0,
    **facts: Any,
) -> sandboxes.Step:
    """`of_pod`: facts of the pod."""
    told = None if pod is None else PodFacts(pod, **{"first_seen": 0.0, **(of_pod or {})})
    return sandboxes.step(one, Facts(**{"pod": told, "first_seen": 0.0, **facts}), now=now, settings=SETTINGS)


def test_a_cold_one_gets_a_pod_once() -> None:
    assert step(sandbox(), created_at=99.0).action == Create()
    waiting = step(sandbox(), made_at=90.0)
    assert (waiting.action, waiting.again_at) == (None, 120.0)
    assert isinstance(step(sandbox(), made_at=60.0).action, EndUnlessPod)
    gone = Verdict("evicted", "x")
    assert step(sandbox(), lost=gone).action == step(sandbox(), made_at=90.0, lost=gone).action == End(gone)
    assert isinstance(step(sandbox(sandboxId="sbx-1")).action, EndUnlessPod)
    assert step(sandbox(madeFor="sb-1"), created_at=99.0).action == Create()
    assert isinstance(step(sandbox(madeFor="sb-1"), told_late=True).action, EndUnlessPod)
    assert step(sandbox(), told_late=True).action == Create(tell=True)
    assert step(sandbox(madeFor="sb-1"), told_late=True, replaced=True).action == Create(tell=True)
    assert isinstance(step(sandbox(said={"phase": "Running"})).action, EndUnlessPod)


def test_one_that_waits_for_its_turn_says_so_and_gets_a_pod_of_the_next_controller() -> None:
    early = step(sandbox(madeFor="sb-1"), created_at=80.0)
    assert (early.action, early.again_at) == (Create(), 110.0)
    assert step(sandbox(madeFor="sb-1"), created_at=70.0).action == Create(tell=True)
    queued = status.queued(sandbox(), now=0.0)
    assert queued is not None
    waits = sandbox(madeFor="sb-1", said=queued["status"])
    assert step(waits, told_late=True).action == Create(tell=True)
    assert status.queued(waits, now=1.0) is None
    starts = step(waits, told_late=True, pod=pod(node=None)).action
    assert starts == step(waits, pod=pod(phase="Running"), of_pod={"ready_since": 90.0}).action
    assert starts == ReportStarting()
    begun = sandbox(madeFor="sb-1", said=queued["status"] | status.starting(waits, now=0.0)["status"])
    assert isinstance(step(begun, told_late=True).action, EndUnlessPod), "it may have had a pod"


def test_one_that_waits_gets_no_pod_and_ends_with_its_gateway() -> None:
    promised = sandbox(sandboxId="sb-1", waitingUntil="2026-01-01T00:00:00Z")
    early = step(promised, waits_until=101.0)
    assert (early.action, early.again_at) == (None, 101.0)
    late = step(promised, waits_until=99.0).action
    assert isinstance(late, End)
    assert late.verdict.verdict == "start_failed"
    assert "gateway" in late.verdict.message
    told = status.ended(promised, late.verdict, pod=None, now=0.0)
    assert told is not None
    assert "podName" not in told["status"]
    assert step(promised, waits_until=99.0, has_instance=True).action == DeleteDuplicate()
    claimed = sandbox(sandboxId="sb-1", podName="i-9", waitingUntil="2026-01-01T00:00:00Z")
    assert step(claimed, first_seen=99.0, waits_until=0.0).action is None


def test_a_claim_waits_for_the_watch_to_show_its_pod() -> None:
    early = step(sandbox(podName="i-9"), first_seen=98.0)
    assert (early.action, early.again_at) == (None, 103.0)
    late = step(sandbox(podName="i-9"), first_seen=90.0).action
    assert late == EndUnlessPod(verdicts.of_missing_pod())
    known = Verdict("oom", "x")
    assert step(sandbox(podName="i-9"), first_seen=99.0, lost=known).action == End(known)


def test_an_ended_one_is_left_alone() -> None:
    assert step(sandbox(said={"phase": "Ended"})).action is None


def test_an_uncertain_end_waits_for_the_gateway() -> None:
    over = pod(phase="Succeeded")
    assert step(sandbox(), pod=over).again_at == pytest.approx(110.0)
    assert isinstance(step(sandbox(), pod=over, of_pod={"uncertain_since": 90.0}).action, End)


def test_a_start_says_what_it_waits_for_and_is_given_up() -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
    waits = pod(node=None, conditions=[said])
    assert step(sandbox(), pod=waits, of_pod={"first_seen": 99.0}).action is None
    assert step(sandbox(), pod=waits, of_pod={"first_seen": 90.0}).action == ReportWaiting("0/2 nodes")
    given_up = step(sandbox(), pod=waits, of_pod={"first_seen": -300.0}).action
    assert isinstance(given_up, End)
    assert given_up.verdict.verdict == "start_failed"
    assert "0/2 nodes" in given_up.verdict.message


def test_running_is_told_a_little_later() -> None:
    up = pod(phase="Running")
    assert step(sandbox(), pod=up, of_pod={"ready_since": 99.5}).again_at == pytest.approx(100.5)
    assert step(sandbox(), pod=up, of_pod={"ready_since": 90.0}).action == Run()


def test_what_the_gateway_has_said_is_not_told_again() -> None:
    up = pod(phase="Running")
    owned: dict[str, Any] = {"sandboxId": "sb-1", "state": "Running"}
    assert step(sandbox(said={}, **owned), pod=up, of_pod={"ready_since": 90.0}) == sandboxes.Step()
    started: dict[str, Any] = {"madeFor": "sb-1", "state": "Started"}
    assert step(sandbox(said={}, **started), pod=up, of_pod={"ready_since": 90.0}) == sandboxes.Step()
    waited = status.pending(sandbox(), message="0/2 nodes", now=0.0)
    assert waited is not None
    assert step(sandbox(said=waited["status"], **owned), pod=up, of_pod={"ready_since": 90.0}).action == Run()


def test_one_of_a_pool_waits_for_its_node_as_long_as_it_takes() -> None:
    waits = PodFacts(pod(node=None), first_seen=-300.0)
    assert diagnose(waits, awaited=False, now=100.0, settings=SETTINGS) == Diagnosis()
    assert diagnose(waits, awaited=True, now=100.0, settings=SETTINGS).verdict is not None
    placed = diagnose(PodFacts(pod(), first_seen=-300.0), awaited=False, now=100.0, settings=SETTINGS)
    assert placed.verdict is not None
    assert placed.verdict.verdict == "start_failed"


def test_a_silent_node_has_its_grace() -> None:
    up = pod(phase="Running")
    assert step(
        sandbox(), pod=up, of_pod={"ready_since": 0.0, "node_lost_at": 110.0}
    ).again_at == pytest.approx(110.0)
    lost = step(sandbox(), pod=up, of_pod={"ready_since": 0.0, "node_lost_at": 100.0}).action
    assert isinstance(lost, End)
    assert lost.verdict.verdict == "node_lost"
