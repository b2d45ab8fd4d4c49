"""Records of a tenant's events: that a sandbox waits, is ready, or has ended."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot.errors import INFRASTRUCTURE


@dataclass(frozen=True, slots=True)
class SandboxEvent:
    """What happened to a sandbox. `type` is `sandbox.queued`, `sandbox.ready` or `sandbox.ended`.

    `id` is the same from every gateway, so that it tells a repeated event; `timestamp` is when it happened, and `cursor`
    where a stream goes on after it. `place` is that in the queue, 1 is next, if the server knows it. Only an ended one
    has a `verdict`.
    """

    id: str
    type: str
    timestamp: str
    sandbox_id: str
    status: str
    cursor: str = ""
    name: str = ""
    run: str | None = None
    labels: tuple[str, ...] = ()
    place: int | None = None
    verdict: str | None = None
    exit_code: int | None = None
    message: str | None = None

    @property
    def infrastructure(self) -> bool:
        """True when neither code nor caller caused the end, so that a trainer can mask the sample."""
        return self.verdict in INFRASTRUCTURE
