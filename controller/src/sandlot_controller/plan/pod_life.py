"""Decides whether a pod has died: by its status, its node's silence, or a slow start."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sandlot_kube import verdicts
from sandlot_kube.objects import Pod
from sandlot_kube.verdicts import Verdict

from ..settings import Settings


@dataclass(frozen=True, slots=True)
class PodFacts:
    """Facts about one pod; times are from one monotonic clock."""

    pod: Pod
    first_seen: float
    ready_since: float | None = None
    uncertain_since: float | None = None  # it has ended, for a reason that the gateway may know
    node_lost_at: float | None = None  # its node is silent
    shown_at: float = -math.inf  # by when a watch that was broken has shown whether it is up, and its node


@dataclass(frozen=True, slots=True)
class Diagnosis:
    verdict: Verdict | None = None  # why it has died
    ended: bool = False  # with or without a verdict: it is of no use any more
    again_at: float | None = None  # when the time alone may change this


def diagnose(facts: PodFacts, *, awaited: bool, now: float, settings: Settings) -> Diagnosis:
    """Diagnose a pod. `awaited`: a caller waits for it; pool pods may wait for a node indefinitely."""
    found = verdicts.of_pod(facts.pod)
    if found is not None:
        # Its sidecar exited in order: retired by us, or claimed and its end is about to be recorded.
        since = now if facts.uncertain_since is None else facts.uncertain_since
        if found.certain or now >= since + settings.end_grace:
            return Diagnosis(found, ended=True)
        return Diagnosis(ended=True, again_at=since + settings.end_grace)
    due: list[float] = []
    node = facts.pod.spec.node_name
    if node and facts.node_lost_at is not None:
        due.append(max(facts.node_lost_at, facts.shown_at))
        if now >= due[-1]:
            return Diagnosis(verdicts.of_lost_node(node, seconds=settings.node_grace), ended=True)
    if facts.ready_since is None and (node or awaited):
        due.append(max(facts.first_seen + settings.start_timeout, facts.shown_at))
        if now >= due[-1]:
            return Diagnosis(verdicts.of_slow_start(facts.pod, seconds=settings.start_timeout), ended=True)
    return Diagnosis(again_at=min(due, default=None))
