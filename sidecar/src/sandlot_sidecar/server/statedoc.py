"""The contract's state document of an instance: what `GET /v1/state` and every webhook tell; no token, no secret."""

from __future__ import annotations

import time

from sandlot_contract.phases import Phase

from .. import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from ..config import Config
    from .clock import Clock
    from .ops import Ops
    from .record import Record
    from .restoration import Restoration
    from .startcommand import StartCommand

    class Instance(Protocol):
        """What is told of it."""

        config: Config
        record: Record
        clock: Clock
        ops: Ops
        restoration: Restoration
        start_command: StartCommand | None
        phase: str
        ready_at: float | None
        notes: list[str]

        def in_use(self) -> bool: ...


NO_START: dict[str, Any] = {"state": "none", "exit_code": None}


def state(instance: Instance) -> dict[str, Any]:
    """Of this moment; times in Unix seconds."""
    record = instance.record
    # A claim that is being applied may still fail: a gateway that asks now, told of an owner in an instance that is
    # not its owner's yet, would take it for both known and free, and never ask again.
    claim = record.claim if instance.phase != Phase.WARM else None
    start = instance.start_command
    return {
        "instance_id": instance.config.instance_id,
        "address": instance.config.address,
        "generation": record.generation,
        "phase": instance.phase,
        "ready_at": instance.ready_at,
        "version": __version__,
        "sandbox_id": claim["sandbox_id"] if claim else None,
        "claimed_at": record.claimed_at if claim else None,
        "deadline_at": record.deadline_at() if claim else None,
        "idle_timeout": claim["idle_timeout"] if claim else None,
        "last_active_at": time.time() if instance.in_use() else instance.clock.last_active,
        "verdict": record.verdict,
        "message": record.message,
        "meta": claim["meta"] if claim else None,
        "egress": record.egress is not None,
        "ops_running": instance.ops.table.running,
        "template": instance.config.template,
        "notes": instance.notes,
        "restoring": instance.restoration.awaited,
        "start_command": start.document() if start else NO_START,
    }
