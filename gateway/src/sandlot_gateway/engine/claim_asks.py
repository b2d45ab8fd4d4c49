"""Asks a sidecar to accept a claim, and again if the answer was lost and the sandbox is in use by then."""

from __future__ import annotations

from typing import Any

from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.instances import Instance
from sandlot_gateway.sidecars import ClaimAnswer, ClaimOutcome, EndAnswer, Sidecars


async def ask(sidecars: Sidecars, instance: Instance, claim: dict[str, Any], *, alone: bool) -> ClaimAnswer:
    """Return the sidecar's answer to the claim. `alone`: no other gateway can have heard of it."""
    answer = await sidecars.claim(instance, claim)
    if alone or answer.outcome != ClaimOutcome.UNCERTAIN:
        return answer
    # A caller may have used it through another gateway: in a second instance what it did would be lost.
    released = await sidecars.end(
        instance, verdict=SandboxVerdict.GIVEN_BACK, only_of=claim["sandbox_id"], only_unused=True
    )
    return await sidecars.claim(instance, claim) if released == EndAnswer.OWNED else answer
