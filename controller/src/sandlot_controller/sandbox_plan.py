"""Decides what a Sandbox needs next from what is known of it and its pod: a function without clock or tasks."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot_kube import verdicts
from sandlot_kube.objects import Pod, Sandbox
from sandlot_kube.verdicts import Verdict

from sandlot_controller.settings import Settings

# The watches are two: the record of a claim may be told before the pod.
MISSING_GRACE = 5.0
_SHOWN_GRACE = 30.0
_UNSCHEDULED_TELL = 3.0


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one Sandbox; times are of one monotonic clock."""

    pod: Pod | None
    first_seen: float  # the resource
    pod_seen: float | None = None
    pod_was_here: bool = False  # and is gone
    told_late: bool = False  # so long after it was made that its pod may have come and gone before
    made_at: float | None = None  # its pod was created by us, whether or not the watch has shown it
    ready_since: float | None = None
    odd_since: float | None = None  # an uncertain verdict was first seen then
    silent_since: float | None = None  # its node
    lost: Verdict | None = None  # what was found when the pod was taken away
    waits_until: float = 0.0  # of one that waits for an instance: its gateway is lost then
    has_instance: bool = False  # of the same: another resource says so


@dataclass(frozen=True, slots=True)
class Create:
    """A pod is wanted, at once."""


@dataclass(frozen=True, slots=True)
class Run:
    """It runs: say so."""


@dataclass(frozen=True, slots=True)
class Tell:
    """It waits: say for what."""

    message: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Another resource tells of it: this one is too many."""


@dataclass(frozen=True, slots=True)
class End:
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Step:
    action: Create | Run | Tell | Drop | End | None = None
    again_at: float | None = None


def step(sandbox: Sandbox, facts: Facts, *, now: float, settings: Settings) -> Step:
    if sandbox.status.phase == "Ended" or sandbox.metadata.deletion_timestamp:
        return Step()  # its end is of lifecycle.py
    if sandbox.spec.waits:
        if now < facts.waits_until:
            return Step(again_at=facts.waits_until)
        return Step(Drop()) if facts.has_instance else Step(End(verdicts.of_lost_gateway()))
    pod = facts.pod
    if pod is None:
        return _without_pod(sandbox, facts, now=now)
    found = verdicts.of_pod(pod)
    if found is not None:
        until = (now if facts.odd_since is None else facts.odd_since) + settings.end_grace
        return Step(End(found)) if found.certain or now >= until else Step(again_at=until)
    node = pod.spec.node_name
    again: float | None = None
    if node and facts.silent_since is not None:
        again = facts.silent_since + settings.node_grace
        if now >= again:
            return Step(End(verdicts.of_lost_node(node, seconds=settings.node_grace)))
    if facts.ready_since is not None:
        said = sandbox.spec.state == "Running" or sandbox.spec.made_for is not None
        if said and not sandbox.status.conditions:
            return Step(again_at=again)  # the gateway has said so, and nothing here contradicts it
        due = facts.ready_since + settings.status_delay
        if now >= due:
            return Step(Run(), again)
        return Step(again_at=min(due, again or due))
    since = facts.first_seen if facts.pod_seen is None else facts.pod_seen
    if now >= since + settings.start_timeout:
        return Step(End(verdicts.of_slow_start(pod, seconds=settings.start_timeout)))
    due = since + settings.start_timeout
    if node is None:
        scheduled = pod.condition("PodScheduled")
        if scheduled is not None and scheduled.status == "False" and scheduled.message:
            if now >= since + _UNSCHEDULED_TELL:
                return Step(Tell(scheduled.message), due)
            due = since + _UNSCHEDULED_TELL
    return Step(again_at=min(due, again or due))


def _without_pod(sandbox: Sandbox, facts: Facts, *, now: float) -> Step:
    warm = sandbox.spec.pod_name is not None
    if facts.lost is not None:
        return Step(End(facts.lost))
    if facts.made_at is not None and not facts.pod_was_here:
        due = facts.made_at + _SHOWN_GRACE
        return Step(End(verdicts.of_missing_pod())) if now >= due else Step(again_at=due)
    # A cold one that was claimed or that ran had a pod; another one would be empty.
    had_one = (
        facts.pod_was_here
        or sandbox.status.phase == "Running"
        or sandbox.spec.sandbox_id is not None
        or (sandbox.spec.made_for is not None and facts.told_late)
    )
    if not warm and not had_one:
        return Step(Create())
    due = facts.first_seen + MISSING_GRACE
    if facts.pod_was_here or now >= due:
        return Step(End(verdicts.of_missing_pod()))
    return Step(again_at=due)
