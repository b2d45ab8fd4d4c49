"""What a gateway of a world of lives calls sidecars by: each call waits until the world lets it arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandlot_gateway.core.instances import Instance
from sandlot_gateway.sidecars import ClaimAnswer, EndAnswer

if TYPE_CHECKING:
    from tests.gateway.lives_gateway import Gateway


class Wire:
    """A gateway's `Sidecars`, over the world."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def claim(self, instance: Instance, claim: dict[str, Any]) -> ClaimAnswer:
        answer = await self._gateway.call("claim", instance.id, claim)
        return ClaimAnswer(answer, {}) if isinstance(answer, str) else answer

    async def end(
        self,
        instance: Instance,
        *,
        verdict: str,
        message: str | None = None,
        only_of: str | None = None,
        only_unused: bool = False,
    ) -> EndAnswer:
        body: dict[str, Any] = {"verdict": verdict} | ({} if only_of is None else {"only_of": only_of})
        body |= {"only_unused": True} if only_unused else {}
        return EndAnswer(await self._gateway.call("end", instance.id, body))

    async def end_unclaimed(self, instance: Instance) -> EndAnswer:
        body = {"verdict": "deleted", "only_unclaimed": True}
        return EndAnswer(await self._gateway.call("end", instance.id, body))
