"""Checks whether sidecars reach the gateways and gateways the sidecars, by metrics and by logs of sidecars."""

from __future__ import annotations

import json
from collections.abc import Iterator

from .. import times
from ..api import Unread
from ..finding import Finding, ok, problem, unchecked
from ..samples import total
from ..world import Kind, World
from .words import several

_SETTLED = 30.0  # seconds after which a ready pod's first webhook has arrived
_QUIET = 360.0  # seconds: the longest time between two heartbeats of an idle sidecar, with its variation
_RECENT = 60.0  # seconds: a sidecar without a gateway tries again sooner
_ADVICE = (
    "check that the pods' DNS and network policies let sidecars reach the gateways' port 8641: "
    "networkPolicy.dns, clusterDomain"
)


def check(world: World) -> Iterator[Finding]:
    yield from _logs(world)
    yield from _metrics(world)


def _logs(world: World) -> Iterator[Finding]:
    failing: dict[str, str] = {}
    read = 0
    for pod, log in world.sidecar_logs.items():
        if isinstance(log, Unread):
            continue
        read += 1
        if error := _last(log, "webhook_failed", "error", world.now):
            failing[pod] = error
    label = "webhooks of sidecars"
    if refusing := [
        error
        for log in world.sidecar_logs.values()
        if (error := _last(log, "tls_refused", "reason", world.now))
    ]:
        yield problem(
            "TLS of sidecars",
            f"{len(refusing)} of {read} refused a connection within the last minute: {'; '.join(several(refusing))}",
            "compare the certificates of both Secrets of sidecarTls (docs/encryption.md)",
        )
    if failing:
        told = "; ".join(several(failing.values()))
        yield problem(
            label,
            f"{len(failing)} of {read} sidecars did not reach a gateway within the last minute: {told}",
            _ADVICE,
        )
    elif read:
        yield ok(label, f"the logs of {read} sidecars tell of no recent failure")
    elif world.sidecar_logs:
        reason = next(log.reason for log in world.sidecar_logs.values() if isinstance(log, Unread))
        yield unchecked(
            label, f"their logs cannot be read: {reason}", "kubectl logs POD -c sidecar shows failed webhooks"
        )
    else:
        yield unchecked(
            label,
            "no sandbox's pod runs",
            "see the pools and pods above; without a pool, create a sandbox first",
        )


def _metrics(world: World) -> Iterator[Finding]:
    settled = _settled(world)
    heard = {pod: _heard(page) for pod, page in world.gateway_metrics.items() if not isinstance(page, Unread)}
    for pod, page in world.gateway_metrics.items():
        label = f"gateway {pod}"
        if isinstance(page, Unread):
            advice = "its pod's state is above; kubectl port-forward shows what stops the connection"
            if page.denied:
                advice = "set SANDLOT_API_KEY to a key of the role operate (docs/keys.md)"
            yield unchecked(label, f"its metrics cannot be read: {page.reason}", advice)
            continue
        failed, refused, fine = (
            total(page, "sandlot_dials_total", result=result) for result in ("failed", "refused", "ok")
        )
        none_free = [pool for pool in settled if not total(page, "sandlot_ready_queue_depth", pool=pool)]
        unsigned = total(page, "sandlot_webhooks_total", event="unsigned")
        # Without a free pod a pool may just be busy: its status and pods were read earlier than this page. But a
        # webhook that was accepted shows that sidecars find a gateway, and that this one has their key.
        told = any(heard.values()) or _new(page, now=world.now)
        if none_free and not heard[pod] and (unsigned or not told):
            more = f"; it rejected {unsigned:g} webhooks as unsigned" if unsigned else ""
            advice = (
                "compare the master key of gateways and controller: restart both" if unsigned else _ADVICE
            )
            yield problem(
                label,
                f"it received no webhook and knows no ready pod of pool {', '.join(several(none_free))}, "
                f"which has some{more}",
                advice,
            )
        elif failed + refused and not fine:
            yield problem(
                label,
                f"none of its {failed + refused:g} connections to sidecars succeeded",
                "check the network policies of the sandboxes' namespace, and its headless Service",
            )
        else:
            said = f"it received {heard[pod]:g} webhooks of sidecars"
            if none_free:
                yield ok(label, f"{said}; no pod of pool {', '.join(several(none_free))} is free now")
            else:
                yield ok(label, f"{said} and knows the pools' ready pods")


def _heard(page: str) -> float:
    """Return how many webhooks of sidecars the gateway accepted."""
    events = ("ready", "heartbeat", "claimed", "ended")
    return sum(total(page, "sandlot_webhooks_total", event=event) for event in events)


def _new(page: str, *, now: float) -> bool:
    """Return whether the gateway has run for so short a time that idle sidecars need not have sent anything."""
    return now - total(page, "process_start_time_seconds") < _QUIET


def _settled(world: World) -> list[str]:
    """Return the pools that have unclaimed pods which have been ready for a while."""
    counts: dict[str, int] = {}
    for pod in world.pods("sandbox"):
        ready = pod.condition("Ready")
        pool = pod.labels.get("sandlot.dev/pool", "")
        old = times.age(ready.text("lastTransitionTime"), now=world.now) > _SETTLED
        if pool and ready.text("status") == "True" and old and not pod.text("metadata", "deletionTimestamp"):
            counts[pool] = counts.get(pool, 0) + 1
    return [
        pool.name
        for pool in world.list(Kind.POOLS, world.release.sandboxes)
        if pool.number("status", "ready") and counts.get(pool.name, 0) > pool.number("status", "claimed")
    ]


def _last(log: str | Unread, event: str, field: str, now: float) -> str:
    """Return the field of the last such event of a sidecar's log, if it is recent."""
    for line in reversed(log.splitlines() if isinstance(log, str) else []):
        try:
            entry = json.loads(line)
            if entry.get("event") == event and entry.get("inside") is not True:
                recent = now - float(entry["at"]) < _RECENT
                return str(entry.get(field)) if recent else ""
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return ""
