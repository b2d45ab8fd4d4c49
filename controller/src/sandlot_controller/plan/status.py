"""Builds merge patches for the status of resources, or None if nothing would change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from sandlot_contract import names
from sandlot_kube import clock, ends
from sandlot_kube.objects import Condition, Pod, Sandbox, SandboxPhase, SandboxPool
from sandlot_kube.template import key
from sandlot_kube.verdicts import Verdict

Patch = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PoolCounts:
    size: int  # wanted now
    ready: int = 0
    starting: int = 0
    claimed: int = 0
    failures: int = 0
    message: str | None = None


def pending(sandbox: Sandbox, *, message: str, now: float) -> Patch | None:
    """Return the patch for a Sandbox whose pod cannot start yet."""
    wanted = {"phase": SandboxPhase.PENDING, "message": message, "templateKey": key(sandbox.spec.template)}
    return _patch(sandbox, wanted, ready=("False", "Waiting", message), now=now)


_QUEUED = "Queued"  # reason of the condition Ready


def queued(sandbox: Sandbox, *, now: float) -> Patch | None:
    """Return the patch for a Sandbox that waits for its pod's creation, which has not begun."""
    message = "waits until the nodes can start another pod"
    wanted = {"phase": SandboxPhase.PENDING, "message": message, "templateKey": key(sandbox.spec.template)}
    return _patch(sandbox, wanted, ready=("False", _QUEUED, message), now=now)


def is_queued(sandbox: Sandbox) -> bool:
    """Return whether the status says that the creation of its pod has not begun."""
    pending = sandbox.status.phase is SandboxPhase.PENDING
    return pending and any(one.type == "Ready" and one.reason == _QUEUED for one in sandbox.status.conditions)


def starting(sandbox: Sandbox, *, now: float) -> Patch:
    """Return the patch that takes `queued` back."""
    others = [msgspec.to_builtins(one) for one in sandbox.status.conditions if one.type != "Ready"]
    since = clock.text(now)
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "Starting",
        "message": "",
        "lastTransitionTime": since,
    }
    return {"status": {"message": None, "conditions": [*others, ready]}}


def running(sandbox: Sandbox, pod: Pod, *, now: float) -> Patch | None:
    wanted: Patch = {
        "phase": SandboxPhase.RUNNING,
        "podName": pod.metadata.name,
        "podIP": pod.status.pod_ip,
        "nodeName": pod.spec.node_name,
        "message": None,
        "templateKey": key(sandbox.spec.template),
        "startedAt": sandbox.status.started_at or _started(pod) or clock.text(now),
    }
    return _patch(sandbox, wanted, ready=("True", "Running", ""), now=now)


def ended(sandbox: Sandbox, verdict: Verdict, *, pod: Pod | None, now: float) -> Patch | None:
    """Return the patch for an end; the first recorded end wins."""
    if sandbox.status.phase is SandboxPhase.ENDED:
        return None
    at = clock.text(now)
    wanted = ends.status(
        ends.Ended(verdict.verdict, at, message=verdict.message, exit_code=verdict.exit_code)
    )
    wanted["templateKey"] = key(sandbox.spec.template)
    if not sandbox.spec.waits:
        wanted["podName"] = sandbox.instance_id
    if pod is not None:
        wanted |= {"podIP": pod.status.pod_ip, "nodeName": pod.spec.node_name}
    return {"status": wanted}


def pool(pool: SandboxPool, counts: PoolCounts, *, now: float) -> Patch | None:
    if counts.message:
        reason, message = (
            ("Failing" if counts.failures else "Waiting"),
            counts.message[: ends.LONGEST_MESSAGE],
        )
    else:
        reason, message = ("Filled" if counts.ready >= counts.size else "Filling"), None
    wanted: Patch = {
        "size": counts.size,
        "ready": counts.ready,
        "starting": counts.starting,
        "replicas": counts.ready + counts.starting,
        "selector": f"{names.LABEL_POOL}={pool.metadata.name}",
        "claimed": counts.claimed,
        "failures": counts.failures,
        "message": message,
        "templateKey": key(pool.spec.template),
        "observedGeneration": pool.metadata.generation,
    }
    ready = ("True" if counts.ready >= counts.size else "False", reason, message or "")
    return _patch(pool, wanted, ready=ready, now=now)


def urgent(pool: SandboxPool, patch: Patch) -> bool:
    """Return whether more than counts changed, or the pool is full again; counts change with every claim."""
    told = patch["status"]
    if {"message", "templateKey", "observedGeneration", "size", "failures"} & told.keys():
        return True
    # a patch has all conditions or none
    full = any(one["type"] == "Ready" and one["status"] == "True" for one in told.get("conditions", []))
    was_full = any(one.type == "Ready" and one.status == "True" for one in pool.status.conditions)
    return not pool.status.conditions or (full and not was_full)


def _patch(
    resource: Sandbox | SandboxPool, wanted: Patch, *, ready: tuple[str, str, str], now: float
) -> Patch | None:
    # msgspec omits fields at their default; `_DEFAULTS` has all of these that we write.
    current = _DEFAULTS[type(resource)] | msgspec.to_builtins(resource.status)
    changed = {name: value for name, value in wanted.items() if current.get(name) != value}
    if type(resource) is Sandbox and not resource.status.conditions:
        changed["phase"] = wanted["phase"]  # Pending is also the default of a missing status
    condition = _condition(resource.status.conditions, ready, now=now)
    if condition is not None:
        others = [msgspec.to_builtins(one) for one in resource.status.conditions if one.type != "Ready"]
        changed["conditions"] = [*others, condition]
    return {"status": changed} if changed else None


_DEFAULTS: dict[type, Patch] = {
    Sandbox: {"phase": SandboxPhase.PENDING},
    SandboxPool: {
        "ready": 0,
        "starting": 0,
        "replicas": 0,
        "claimed": 0,
        "failures": 0,
        "observedGeneration": 0,
    },
}


def _condition(present: list[Condition], ready: tuple[str, str, str], *, now: float) -> Patch | None:
    status, reason, message = ready
    old = next((one for one in present if one.type == "Ready"), None)
    if old is not None and (old.status, old.reason or "", old.message or "") == ready:
        return None
    since = old.last_transition_time if old is not None and old.status == status else None
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since or clock.text(now),
    }


def _started(pod: Pod) -> str | None:
    container = pod.container(names.CONTAINER_SANDBOX)
    state = container.state.running if container else None
    return state.started_at if state else None
