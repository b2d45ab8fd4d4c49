"""Builds the contract's state document for `GET /v1/state` and webhooks, without tokens and secrets."""

from __future__ import annotations

import time

from sandlot_contract.phases import Phase

from .. import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from ..config import Config
    from ..core.instance import InstanceState
    from .ops import Ops
    from .sandbox import Sandbox
    from .serving import Serving
    from .use import Use

    class Instance(Protocol):
        """The parts of an instance that its state document shows."""

        config: Config
        life: InstanceState
        use: Use
        ops: Ops

        @property
        def phase(self) -> str: ...

        sandbox: Sandbox
        serving: Serving


NO_START: dict[str, Any] = {"state": "none", "exit_code": None}


def state(instance: Instance) -> dict[str, Any]:
    """Return the current state document; times are Unix seconds."""
    record, use = instance.life.record, instance.use
    # A claim in progress may still fail, see InstanceState.
    claim = record.claim if instance.phase != Phase.WARM else None
    start = use.start_command
    return {
        "instance_id": instance.config.instance_id,
        "address": instance.config.address,
        "generation": record.generation,
        "phase": instance.phase,
        "claiming": instance.life.claiming,
        "ready_at": instance.serving.ready_at,
        "bound_to": instance.life.bound_to,
        "uses": instance.life.uses,
        "version": __version__,
        "mounts_copies": True,  # that other sandboxes' files lie in
        "sandbox_id": claim["sandbox_id"] if claim else None,
        "claimed_at": record.claimed_at if claim else None,
        "deadline_at": record.deadline_at() if claim else None,
        "idle_timeout": claim["idle_timeout"] if claim else None,
        "last_active_at": time.time() if use.under_way() else use.last_active,
        "verdict": record.verdict,
        "message": record.message,
        "meta": claim["meta"] if claim else None,
        "egress": record.egress is not None,
        "user": claim["user"] if claim else None,
        "services": bool(claim and claim.get("services")),
        "ops_running": instance.ops.table.running,
        "template": instance.config.template,
        "image": instance.sandbox.image_id,
        "notes": instance.sandbox.notes,
        "restoring": instance.life.restoring,
        "start_command": start.document() if start else NO_START,
    }
