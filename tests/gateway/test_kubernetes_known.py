"""What a gateway knows of Sandbox resources, and those that wait for one."""

from __future__ import annotations

import asyncio

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_gateway.backends.kubernetes.known import Known, KnownSandboxes

OWNER = SandboxId("sb-0")


async def test_one_that_waits_longer_than_another_is_woken_by_the_record() -> None:
    known = KnownSandboxes()
    patient = asyncio.create_task(known.wait_for(OWNER, timeout=3600.0))
    await known.wait_for(OWNER, timeout=0.01)
    known.keep(Known("sb-0", InstanceId("i-0"), OWNER, None))
    async with asyncio.timeout(10):
        await patient


async def test_one_whose_caller_leaves_takes_nothing_from_the_others() -> None:
    known = KnownSandboxes()
    leaving, patient = [asyncio.create_task(known.wait_for(OWNER, timeout=3600.0)) for _ in range(2)]
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    known.keep(Known("sb-0", InstanceId("i-0"), OWNER, None))
    async with asyncio.timeout(10):
        await patient
