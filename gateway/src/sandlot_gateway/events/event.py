"""Defines the events of a sandbox, with ids that every gateway derives alike from the sandbox and its transition."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeGuard

import msgspec
from sandlot_contract.ids import SandboxId

from sandlot_gateway.sandboxes import Sandbox

_YEAR_9999 = 253_370_764_800.0  # in Unix seconds
_LONGEST_MESSAGE = 1000  # characters: code in the sandbox can choose some of them


class EventType(StrEnum):
    QUEUED = "sandbox.queued"  # its create was answered PENDING
    READY = "sandbox.ready"
    ENDED = "sandbox.ended"


class EventData(msgspec.Struct, gc=False):
    sandboxId: SandboxId
    name: str
    run: str | None
    labels: list[str]
    status: str
    place: int | None  # in the queue, 1 is next
    verdict: str | None
    exitCode: int | None
    message: str | None


class EventDocument(msgspec.Struct, gc=False):
    """An event as clients read it."""

    id: str
    type: str
    timestamp: str
    data: EventData


@dataclass(frozen=True, slots=True)
class Event:
    document: EventDocument
    text: bytes  # the document as JSON, without line breaks
    happened: float  # Unix seconds


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events a reader wants; an empty field takes all, and of `labels` a sandbox must have all."""

    labels: frozenset[str] = frozenset()
    sandbox_ids: frozenset[SandboxId] = frozenset()
    types: frozenset[str] = frozenset()
    run: str | None = None

    def takes(self, event: Event) -> bool:
        document, data = event.document, event.document.data
        return (
            (not self.types or document.type in self.types)
            and (not self.sandbox_ids or data.sandboxId in self.sandbox_ids)
            and (self.run is None or data.run == self.run)
            and self.labels.issubset(data.labels)
        )


def event_of(sandbox: Sandbox, kind: EventType, *, place: int | None = None) -> Event:
    """Return the event of this transition of a sandbox."""
    spec = sandbox.spec
    happened = {
        EventType.QUEUED: sandbox.created_at,
        EventType.READY: sandbox.started_at,
        EventType.ENDED: sandbox.ended_at,
    }[kind]
    has_ended = kind is EventType.ENDED
    data = EventData(
        sandboxId=sandbox.id,
        name=spec.name,
        run=spec.run,
        labels=spec.labels,
        status=sandbox.status if has_ended else ("RUNNING" if kind is EventType.READY else "PENDING"),
        place=place,
        verdict=sandbox.verdict if has_ended else None,
        exitCode=sandbox.exit_code if has_ended else None,
        message=_shown(sandbox.message) if has_ended else None,
    )
    at = happened if _is_time(happened) else sandbox.updated_at
    name = kind.value.partition(".")[2]
    document = EventDocument(f"{sandbox.id}:{name}", kind.value, _iso(at), data)
    return Event(document, msgspec.json.encode(document), at)


def read_event(text: bytes) -> Event:
    """Read another gateway's event. Raises msgspec.MsgspecError, ValueError."""
    document = msgspec.json.decode(text, type=EventDocument)
    at = datetime.fromisoformat(document.timestamp).timestamp()
    return Event(document, msgspec.json.encode(document), at)


def read_types(names: Collection[str]) -> frozenset[str]:
    """Return the types with these names. Raises ValueError for one that there is not."""
    unknown = set(names) - set(EventType)
    if unknown:
        raise ValueError(f"{sorted(unknown)[0]!r} is no type of events: give some of {', '.join(EventType)}")
    return frozenset(names)


def _shown(message: str | None) -> str | None:
    """Return a message that can be sent: one about a file may have half a character of its name."""
    return (message or "")[:_LONGEST_MESSAGE].encode("utf-8", "replace").decode() or None


def _is_time(value: object) -> TypeGuard[float]:
    """Return whether it can be written as a time: sidecars and records say when a sandbox began, unchecked."""
    return isinstance(value, int | float) and 0 <= value < _YEAR_9999


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
