"""Sums what each tenant's live sandboxes hold; a sandbox counts once, from its create until its end."""

from __future__ import annotations

from typing import NamedTuple

from sandlot_contract.ids import SandboxId


class Amounts(NamedTuple):
    """What sandboxes hold, in whole numbers: sums of floats would not return to zero."""

    sandboxes: int = 0
    millicores: int = 0
    memory: int = 0  # bytes
    gpus: int = 0

    def plus(self, other: Amounts) -> Amounts:
        return Amounts(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, count: int) -> Amounts:
        return Amounts(*(count * amount for amount in self))


def amounts(*, cpu: float, memory: int, gpus: int) -> Amounts:
    """Return what one sandbox of this size holds."""
    return Amounts(1, round(cpu * 1000), memory, gpus)


class Holdings:
    """The sums by tenant.

    Each sandbox's amounts are kept by its id, so that its end gives back what its begin took: its request may have been
    replaced meanwhile, and an end may be told twice.
    """

    def __init__(self) -> None:
        self._held: dict[SandboxId, tuple[str, Amounts]] = {}
        self._sums: dict[str, Amounts] = {}

    def __len__(self) -> int:
        return len(self._held)

    def of(self, tenant: str) -> Amounts:
        return self._sums.get(tenant, Amounts())

    def hold(self, sandbox_id: SandboxId, *, tenant: str, amounts: Amounts) -> None:
        """Count a sandbox; one that counts already has these amounts from now on."""
        if self._held.get(sandbox_id) == (tenant, amounts):
            return
        self.release(sandbox_id)
        self._held[sandbox_id] = (tenant, amounts)
        self._sums[tenant] = self.of(tenant).plus(amounts)

    def release(self, sandbox_id: SandboxId) -> None:
        """Give back what a sandbox holds; nothing if it holds nothing."""
        if (held := self._held.pop(sandbox_id, None)) is None:
            return
        tenant, amounts = held
        left = self.of(tenant).plus(amounts.times(-1))
        if left.sandboxes:
            self._sums[tenant] = left
        else:
            del self._sums[tenant]
