"""The latest warning that the cluster's events have of each pod."""

from __future__ import annotations

from . import times
from .api import Listing
from .doc import Doc
from .waits import Wait
from .world import Kind, World


def warnings(world: World, namespace: str) -> dict[str, str]:
    """Return reason and message by pod; without the right to read events, nothing."""
    found = world.readings.get((Kind.EVENTS, namespace))
    events = found.items if isinstance(found, Listing) else []
    return {
        one.text("involvedObject", "name"): f"{one.text('reason')}: {' '.join(one.text('message').split())}"
        for one in sorted(events, key=_time)
        if one.text("involvedObject", "kind") == "Pod"
    }


def explained(wait: Wait, told: dict[str, str]) -> str:
    """Return what holds the pod up; of a slow start only events know more."""
    more = told.get(wait.pod, "") if wait.of == "start" else ""
    return f"{wait.text}: {more}" if more else wait.text


def _time(event: Doc) -> float:
    texts = (
        event.text("lastTimestamp"),
        event.text("eventTime"),
        event.text("metadata", "creationTimestamp"),
    )
    return times.seconds(next(filter(None, texts), "")) or 0.0
