"""Indexes the sandboxes that continue a paused one, by its id, which its clients go on using."""

from __future__ import annotations

from sandlot_contract.ids import SandboxId

from sandlot_gateway.sandboxes import Sandbox


class Continuations:
    """A sandbox that is paused again has several, one after the other."""

    def __init__(self) -> None:
        self._of: dict[SandboxId, dict[SandboxId, Sandbox]] = {}

    def add(self, sandbox: Sandbox) -> None:
        if sandbox.spec.continues is not None:
            self._of.setdefault(sandbox.spec.continues, {})[sandbox.id] = sandbox

    def remove(self, sandbox: Sandbox) -> None:
        first = sandbox.spec.continues
        if first is not None and first in self._of:
            self._of[first].pop(sandbox.id, None)
            if not self._of[first]:
                del self._of[first]

    def live(self, sandbox_id: SandboxId) -> Sandbox | None:
        return next((each for each in self._of.get(sandbox_id, {}).values() if each.live), None)
