"""A pool whose instances are all ready."""

from __future__ import annotations

from sandlot_contract.template import Template
from sandlot_gateway.core.instances import PoolSpec

from tests.gateway.conftest import Running
from tests.waiting import until

WARM = PoolSpec("warm", Template(image="host"), 3)


async def warmed(box: Running, spec: PoolSpec = WARM) -> None:
    await box.backend.set_pool(spec)
    await until(lambda: box.gateway.supply.slots.warm.count(spec.name) == spec.size)
