"""Decides the next step of a Sandbox from what is known about it and its pod, without clock or tasks."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot_kube import verdicts
from sandlot_kube.objects import Pod, Sandbox, SandboxPhase, SandboxState
from sandlot_kube.verdicts import Verdict

from ..settings import Settings
from . import status
from .pod_life import PodFacts, diagnose

# The watches are independent: a claim may be reported before its pod.
MISSING_GRACE = 5.0
_SHOWN_GRACE = 30.0
_UNSCHEDULED_TELL = 3.0
QUEUED_TELL = 30.0  # seconds; below `_LATE` of act/sandbox_facts.py by a lease of the controller


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about one Sandbox; times are from one monotonic clock."""

    pod: PodFacts | None
    first_seen: float  # the resource
    created_at: float = 0.0  # the resource, by the API server's clock
    told_late: bool = False  # first seen so late that its pod may have come and gone
    made_at: float | None = None  # we created its pod, whether or not the watch has shown it
    replaced: bool = False  # the pod that it had is gone, and never had a node
    lost: Verdict | None = None  # why its pod is gone, if it had one
    waits_until: float = 0.0  # if it waits for an instance: when its gateway counts as lost
    has_instance: bool = False  # another resource has its instance


@dataclass(frozen=True, slots=True)
class Create:
    """Action: create a pod at once. `tell`: if it has to wait for its turn, the status says so."""

    tell: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Action: set the status to Running."""


@dataclass(frozen=True, slots=True)
class ReportWaiting:
    """Action: report in the status what it waits for."""

    message: str


@dataclass(frozen=True, slots=True)
class ReportStarting:
    """Action: take back in the status that it waits for its turn."""


@dataclass(frozen=True, slots=True)
class DeleteDuplicate:
    """Action: delete this resource, which another one duplicates."""


@dataclass(frozen=True, slots=True)
class End:
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class EndUnlessPod:
    """Action: end it, unless the API server has the pod, which the watch has not shown yet."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Step:
    action: Create | Run | ReportWaiting | ReportStarting | DeleteDuplicate | End | EndUnlessPod | None = None
    again_at: float | None = None


def step(sandbox: Sandbox, facts: Facts, *, now: float, settings: Settings) -> Step:
    if sandbox.status.phase is SandboxPhase.ENDED or sandbox.metadata.deletion_timestamp:
        return Step()  # act/ended_sandboxes.py cleans up
    if sandbox.spec.waits:
        if now < facts.waits_until:
            return Step(again_at=facts.waits_until)
        return Step(DeleteDuplicate()) if facts.has_instance else Step(End(verdicts.of_lost_gateway()))
    if facts.pod is None:
        return _without_pod(sandbox, facts, now=now)
    return _with_pod(sandbox, facts.pod, now=now, settings=settings)


def _with_pod(sandbox: Sandbox, facts: PodFacts, *, now: float, settings: Settings) -> Step:
    found = diagnose(facts, awaited=True, now=now, settings=settings)
    if found.verdict is not None:
        return Step(End(found.verdict))
    again = found.again_at
    if status.is_queued(sandbox):
        # Not before the pod exists: the next controller would take a sandbox without both for lost.
        return Step(ReportStarting(), again)
    if found.ended:
        return Step(again_at=again)
    if facts.ready_since is not None:
        said = sandbox.spec.state == SandboxState.RUNNING or sandbox.spec.made_for is not None
        if said and not sandbox.status.conditions:
            return Step(again_at=again)  # the gateway has written so, and nothing here contradicts it
        return _when(Run(), facts.ready_since + settings.status_delay, now=now, again_at=again)
    if (message := _no_node_for(facts.pod)) is not None:
        return _when(ReportWaiting(message), facts.first_seen + _UNSCHEDULED_TELL, now=now, again_at=again)
    return Step(again_at=again)


def _when(action: Run | ReportWaiting, due: float, *, now: float, again_at: float | None) -> Step:
    return Step(action, again_at) if now >= due else Step(again_at=min(due, again_at or due))


def _no_node_for(pod: Pod) -> str | None:
    """Return why the scheduler has found no node, or None."""
    scheduled = pod.condition("PodScheduled")
    if pod.spec.node_name is not None or scheduled is None or scheduled.status != "False":
        return None
    return scheduled.message or None


def _without_pod(sandbox: Sandbox, facts: Facts, *, now: float) -> Step:
    warm = sandbox.spec.pod_name is not None
    if facts.lost is not None:
        return Step(End(facts.lost))
    if facts.made_at is not None:
        due = facts.made_at + _SHOWN_GRACE
        return Step(EndUnlessPod(verdicts.of_missing_pod())) if now >= due else Step(again_at=due)
    # A cold one that was claimed or that ran had a pod; a new one would be empty.
    had_one = not facts.replaced and (
        sandbox.status.phase is SandboxPhase.RUNNING
        or sandbox.spec.sandbox_id is not None
        or (sandbox.spec.made_for is not None and facts.told_late and not status.is_queued(sandbox))
    )
    if not warm and not had_one:
        return _create(facts, now=now)
    due = facts.first_seen + MISSING_GRACE
    if now >= due:
        return Step(EndUnlessPod(verdicts.of_missing_pod()))
    return Step(again_at=due)


def _create(facts: Facts, *, now: float) -> Step:
    """Have a pod created; one that waits long for its turn says so, lest the next controller takes it for lost."""
    due = facts.created_at + QUEUED_TELL
    return Step(Create(tell=True)) if now >= due else Step(Create(), again_at=due)
