"""Hundreds of creates at two gateways that know the same instances: each instance gets exactly one owner."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path

from sandlot_contract.template import Template
from sandlot_gateway.core.backend import Unavailable
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.tokens import Tokens

from tests.gateway.conftest import Running, running
from tests.gateway.machine import Machine
from tests.gateway.sidecars import StubSidecar, new_instance_id

KEY = b"k" * 32
# Far more than the 128 that are under way at a time.
INSTANCES, CREATES = 250, 600


async def stand_by(machine: Machine, count: int) -> None:
    tokens, template = Tokens(KEY), Template("host")
    for _ in range(count):
        instance_id = new_instance_id()
        token = tokens.instance(instance_id)
        sidecar = StubSidecar(instance_id=instance_id, token=token, directory=machine.directory)
        await sidecar.start()
        machine.sidecars[instance_id] = sidecar
        machine.instances[instance_id] = Instance(instance_id, template, sidecar.address, token)


async def create(gateway: Running, limit: asyncio.Semaphore) -> tuple[int, str | None]:
    async with limit:
        answer = await gateway.client.post(
            "/api/v1/sandbox", json={"docker_image": "host", "wait_seconds": 25}
        )
    return answer.status_code, answer.json().get("id")


async def test_no_instance_has_two_owners(machine: Machine) -> None:
    await stand_by(machine, INSTANCES)
    # An instance object belongs to one gateway, as it does in two processes.
    other = Machine(machine.directory, sidecars=dict(machine.sidecars))
    other.instances = {
        name: Instance(name, instance.template, instance.address, instance.token)
        for name, instance in machine.instances.items()
    }
    for one in (machine, other):
        one.fail_launch = [Unavailable("none can be started", retry_after=60, refuse=True)] * CREATES
    with (
        tempfile.TemporaryDirectory(prefix="sg-") as first,
        tempfile.TemporaryDirectory(prefix="sg-") as second,
    ):
        for directory in (first, second):
            (Path(directory) / "key").write_bytes(KEY)
        async with (
            running(Path(first), machine, spare_seconds=600) as a,
            running(Path(second), other, spare_seconds=600) as b,
        ):
            limits = [asyncio.Semaphore(64), asyncio.Semaphore(64)]
            answers = await asyncio.gather(
                *(create((a, b)[index % 2], limits[index % 2]) for index in range(CREATES))
            )
            statuses = Counter(status for status, _ in answers)
            assert statuses == {201: INSTANCES, 503: CREATES - INSTANCES}
            made = {sandbox_id for status, sandbox_id in answers if status == 201}
            owners = [sidecar.owners for sidecar in machine.sidecars.values()]
            assert all(len(names) == 1 for names in owners)
            assert {names[0] for names in owners} == made
            # They did race: many a claim came to an instance that had an owner by then.
            assert sum(sidecar.claims_seen for sidecar in machine.sidecars.values()) > INSTANCES
