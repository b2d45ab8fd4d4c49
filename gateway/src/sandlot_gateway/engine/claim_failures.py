"""How a claim fails for its create, see `Claimer.claim`."""

from __future__ import annotations

from sandlot_gateway.core.slot import Loss


class ClaimRefused(Exception):
    """The claim is invalid, so that every sidecar would reject it. `field` is the claim's field."""

    def __init__(self, message: str, *, field: str | None) -> None:
        super().__init__(message)
        self.field = field


class NoSidecar(Exception):
    """Too many instances in a row failed during the claim."""


class LostAtOnce(Exception):
    """The claim was accepted and has ended since, before its answer was read or known, as `loss` says."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss.message or loss.verdict)
        self.loss = loss


class Abandoned(Exception):
    """The sandbox was deleted before it had an instance."""
