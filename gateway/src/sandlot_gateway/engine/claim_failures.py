"""How a claim fails for its create, see `Claimer.claim`."""

from __future__ import annotations

from sandlot_contract.ids import InstanceId
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.slot import Loss

# Verdicts by which a gateway may know of an instance that another one has ended.
UNSAID: frozenset[str] = frozenset(
    {
        SandboxVerdict.EVICTED,
        SandboxVerdict.NODE_LOST,
        SandboxVerdict.SIDECAR_LOST,
        SandboxVerdict.SANDBOX_LOST,
    }
)


class ClaimRefused(Exception):
    """The claim is invalid, so that every sidecar would reject it. `field` is the claim's field."""

    def __init__(self, message: str, *, field: str | None) -> None:
        super().__init__(message)
        self.field = field


class NoSidecar(Exception):
    """Too many instances in a row failed during the claim."""


class LostAtOnce(Exception):
    """The instance accepted the claim, which has ended since, before its answer was read or known, as `loss` says."""

    def __init__(self, loss: Loss, instance_id: InstanceId) -> None:
        super().__init__(loss.message or loss.verdict)
        self.loss, self.instance_id = loss, instance_id


class Abandoned(Exception):
    """The sandbox was deleted before it had an instance."""
