"""`make bench`: measures every row with its floor; exits with 1 and names the rows that miss a bound."""

from __future__ import annotations

import asyncio
import sys

from sandlot import Client
from sandlot_grade.stack import PrivateStack

from loadtests.bounds import SPEC
from loadtests.gateway.create_rate_rows import ROWS as CREATE_RATE_ROWS
from loadtests.gateway.create_rate_rows import create_rate
from loadtests.gateway.encrypted_rows import ROWS as ENCRYPTED_ROWS
from loadtests.gateway.encrypted_rows import encrypted
from loadtests.gateway.request_rate_rows import gateway
from loadtests.local import other_image_rows, reset_rows
from loadtests.local.checkpoint_rows import ROW as CHECKPOINT_ROW
from loadtests.local.checkpoint_rows import checkpoint_s3
from loadtests.local.create_rows import warm_create
from loadtests.local.directory_rows import ROWS as DIRECTORY_ROWS
from loadtests.local.directory_rows import directory
from loadtests.local.exec_rows import latency, rate
from loadtests.local.file_rows import local, rows
from loadtests.local.fork_rows import ROW as FORK_ROW
from loadtests.local.fork_rows import fork
from loadtests.local.fusion_rows import OPTIONS as FUSION
from loadtests.local.fusion_rows import ROW as FUSION_ROW
from loadtests.local.fusion_rows import fusion
from loadtests.local.group_rows import ROW as GROUP_ROW
from loadtests.local.group_rows import group_create
from loadtests.local.gvisor_memory_rows import ROWS as MEMORY_ROWS
from loadtests.local.gvisor_memory_rows import memory
from loadtests.local.idle_sidecar_rows import idle
from loadtests.local.sibling_rows import ROW as SIBLING_ROW
from loadtests.local.sibling_rows import checkpoint_siblings
from loadtests.local.udp_rows import ROW as UDP_ROW
from loadtests.local.udp_rows import udp
from loadtests.placement.rows import ROWS as PLACEMENT_ROWS
from loadtests.placement.rows import placement
from loadtests.prime.rows import prime_create
from loadtests.requirements import Requirement, missing
from loadtests.running import Group, Readings, main
from loadtests.sdk.cpu_rows import sdk_cpu


async def _exec_latency() -> Readings:
    async with _stack() as stack:
        endpoint = await stack.client.endpoint()
        client = Client(url=endpoint.url, api_key=endpoint.api_key)
        try:
            return {"exec_latency": await asyncio.to_thread(latency, client)}
        finally:
            client.close()


async def _exec_rate() -> Readings:
    async with _stack() as stack:
        return {"exec_rate": await rate(stack.client)}


async def _create() -> Readings:
    async with _stack() as stack:
        return {"create_warm": await warm_create(stack.client)}


async def _group() -> Readings:
    async with _stack() as stack:
        return {GROUP_ROW: await group_create(stack.client)}


async def _fork() -> Readings:
    async with _stack() as stack:
        return {FORK_ROW: await fork(stack.client)}


async def _checkpoint() -> Readings:
    return {CHECKPOINT_ROW: await checkpoint_s3()}


async def _siblings() -> Readings:
    return {SIBLING_ROW: await checkpoint_siblings()}


async def _files() -> Readings:
    async with _stack() as stack:
        return await local(stack.client)


async def _directory() -> Readings:
    async with _stack() as stack:
        return dict(await directory(stack.client))


async def _udp() -> Readings:
    async with _stack() as stack:
        return {UDP_ROW: await udp(stack.client)}


async def _fusion() -> Readings:
    async with _stack(options=FUSION) as stack:
        return {FUSION_ROW: await fusion(stack.client)}


async def _prime_rpc() -> Readings:
    async with _stack() as stack:
        return {"prime_rpc": await prime_create(stack.client, version="0.5.1")}


async def _prime_rest() -> Readings:
    async with _stack() as stack:
        return {"prime_rest": await prime_create(stack.client, version="0.2.27")}


async def _gateway() -> Readings:
    return await asyncio.to_thread(gateway)


async def _placement() -> Readings:
    return placement()


async def _sdk() -> Readings:
    return {"sdk_cpu": await asyncio.to_thread(sdk_cpu)}


_IN_RUNC = (Requirement.ROOT, Requirement.RUNC)
_IN_GVISOR = (Requirement.ROOT, Requirement.RUNSC)
GROUPS = (
    Group(("exec_latency",), _exec_latency),
    Group(("exec_rate",), _exec_rate),
    Group(("create_warm",), _create),
    Group((GROUP_ROW,), _group),
    Group((FORK_ROW,), _fork),
    Group((CHECKPOINT_ROW,), _checkpoint, requires=(Requirement.ROOT, Requirement.S3)),
    Group((SIBLING_ROW,), _siblings),
    Group(rows(), _files),
    Group(DIRECTORY_ROWS, _directory),
    Group((UDP_ROW,), _udp),
    Group((FUSION_ROW,), _fusion),
    Group(("prime_rpc",), _prime_rpc),
    Group(("prime_rest",), _prime_rest),
    Group(("sidecar_memory", "sidecar_wakeups"), idle),
    Group(("gateway_rate", "gateway_p99", "bare_over_gateway"), _gateway),
    Group(ENCRYPTED_ROWS, encrypted, requires=(Requirement.ROOT,)),
    Group(CREATE_RATE_ROWS, create_rate, requires=(Requirement.ROOT, Requirement.API_SERVER)),
    Group(("sdk_cpu",), _sdk),
    Group(PLACEMENT_ROWS, _placement),
    Group(MEMORY_ROWS, memory, requires=_IN_GVISOR),
    Group((reset_rows.LOCAL,), reset_rows.local, requires=(Requirement.ROOT,)),
    Group((reset_rows.GVISOR,), reset_rows.gvisor, requires=_IN_GVISOR),
    Group((other_image_rows.RUNC,), other_image_rows.runc, requires=_IN_RUNC),
    Group((other_image_rows.GVISOR,), other_image_rows.gvisor, requires=_IN_GVISOR),
)


class _stack(PrivateStack):
    """A private stack that removes its directory at the end."""

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(None, None, None)
        self.remove()


def run() -> int:
    groups = []
    for group in GROUPS:
        lacking = missing(group.requires)
        if lacking is None:
            groups.append(group)
        else:
            print(f"left out: {' and '.join(group.rows)} (needs {lacking.value})", flush=True)
    return main(groups, spec=SPEC, name="bench", description=__doc__ or "")


if __name__ == "__main__":
    sys.exit(run())
