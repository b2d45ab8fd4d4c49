"""What is in a world of lives: its time, its sidecars, and what is under way between them and gateways."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sandlot_contract.reuse import ReusePolicy
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import PoolSpec, Reuse
from sandlot_gateway.keys import Tenant

if TYPE_CHECKING:
    from tests.gateway.lives_gateway import Gateway

TEMPLATE = Template("host")
TENANT, ANOTHER_TENANT = Tenant("t"), Tenant("u")
REUSING = PoolSpec("reusing", TEMPLATE, 0, reuse=Reuse(ReusePolicy.TENANT))

# What a call may come to when its answer, or the call itself, is lost.
UNANSWERED = {"claim": "uncertain", "end": "unknown", "reset": False, "launch": "refused"}
UNSENT = {"claim": "unreachable", "end": "unknown", "reset": False, "launch": "failed"}


class VirtualTime(asyncio.SelectorEventLoop):
    """Its clock moves when it is told to, so that an hour of timers takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    async def rest(self) -> None:
        """Until nothing is left to be run at this time."""
        for _ in range(1000):
            await asyncio.sleep(0)
            if not self._ready:  # type: ignore[attr-defined]
                return
        raise AssertionError("its tasks never wait")


@dataclass
class Sidecar:
    """What one really is, whoever knows of it."""

    instance_id: str
    address: str
    generation: int = 1
    phase: str = "starting"
    claim: dict[str, Any] | None = None
    claimed_at: float | None = None
    verdict: str | None = None
    bound_to: str | None = None
    uses: int = 0
    restored: bool = False
    used: bool = False
    claiming: bool = False
    applies: dict[str, Any] | None = None  # the claim that it is applying
    grace: asyncio.TimerHandle | None = None  # after which it ends if it is unused

    @property
    def owner(self) -> str | None:
        return self.claim["sandbox_id"] if self.claim is not None and self.phase == "claimed" else None

    def state(self) -> dict[str, Any]:
        claim = self.claim or {}
        return {
            "instance_id": self.instance_id,
            "generation": self.generation,
            "phase": self.phase,
            "claiming": self.claiming,
            "sandbox_id": claim.get("sandbox_id"),
            "claimed_at": self.claimed_at,
            "meta": claim.get("meta"),
            "verdict": self.verdict,
            "bound_to": self.bound_to,
            "uses": self.uses,
            "restoring": bool(claim.get("restore")) and not self.restored,
        }


@dataclass(eq=False)
class Call:
    """One request of a gateway that has been sent, and is answered when the world says so."""

    gateway: Gateway
    kind: str
    instance_id: str
    body: dict[str, Any]
    answer: asyncio.Future[Any]
    result: Any = None
    arrived: bool = False


@dataclass
class Word:
    gateway: Gateway
    instance_id: str
    state: dict[str, Any]
