"""Routes the backend's events and queries to the parts of the gateway."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandlot_contract.ids import InstanceId, SandboxId

from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.owners import RecordedEnd
from sandlot_gateway.core.slot import Loss, Phase
from sandlot_gateway.directory import Directory
from sandlot_gateway.engine.lifecycle import Lifecycle
from sandlot_gateway.engine.supply import Supply


class BackendEvents:
    """Implements core.backend.Events; `found` gets sidecars with their state documents, `refused` rejected records."""

    def __init__(
        self,
        *,
        supply: Supply,
        lifecycle: Lifecycle,
        directory: Directory,
        found: Callable[[Instance, dict[str, Any]], None],
        refused: Callable[[str], None],
    ) -> None:
        self._supply = supply
        self._lifecycle = lifecycle
        self._directory = directory
        self._found = found
        self._refused = refused

    def instance_found(self, instance: Instance, state: dict[str, Any]) -> None:
        self._found(instance, state)

    def instance_lost(self, instance_id: InstanceId, loss: Loss) -> None:
        self._lifecycle.ends.gone(instance_id, loss)

    def pending_create_found(self, sandbox_id: SandboxId, request: dict[str, Any]) -> None:
        self._lifecycle.adoption.pending_create_found(sandbox_id, request)

    def sandbox_ended_elsewhere(self, end: RecordedEnd, *, sought: bool = False) -> None:
        self._lifecycle.adoption.over(end, sought=sought)

    def generation_ended(
        self, instance_id: InstanceId, generation: int, end: RecordedEnd, *, retire: bool
    ) -> None:
        if not self._lifecycle.ends.generation_ended(instance_id, generation, end, retire=retire):
            self._lifecycle.adoption.over(end)

    def record_refused(self, what: str) -> None:
        self._refused(what)

    def phase(self, instance_id: InstanceId) -> Phase | None:
        return self._supply.slots.phase(instance_id)

    def owner(self, instance_id: InstanceId) -> SandboxId | None:
        return self._supply.slots.owner(instance_id)

    def knows(self, sandbox_id: SandboxId) -> bool:
        return self._directory.get(sandbox_id) is not None

    def warm_count(self, pool: str) -> int:
        return self._supply.slots.warm.count(pool)

    def give_up(self, pool: str) -> InstanceId | None:
        return self._supply.shed(pool)
