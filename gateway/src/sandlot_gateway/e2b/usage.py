"""What a sandbox uses now, as E2B's metrics: one measurement, since nothing keeps earlier ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from sandlot_gateway.control.services import Services
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.sidecars import SidecarError, document

from .documents import iso
from .failures import Problem

_BETWEEN = 0.25  # seconds between the two looks that a share of the CPU needs
_OVER = (409, 410)  # its instance is another sandbox's, or nobody's
_SKEW = 5  # seconds, between the clocks of the caller and of this machine


async def metrics(sandbox: Sandbox, have: Services, query: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    """Return the usage now; nothing for another time, or where no figures exist. Raises Problem."""
    instance = have.lifecycle.instance_of(sandbox)
    if instance is None or not _wants_now(query):
        return []
    loop = asyncio.get_running_loop()
    began = loop.time()
    before = await _usage(instance, have)
    if before is None or None in (before["cpu"], before["memory"]):
        return []
    await asyncio.sleep(_BETWEEN)
    took = loop.time() - began
    now = await _usage(instance, have)
    if now is None or None in (now["cpu"], now["memory"]):
        return []
    spec, at = sandbox.spec, time.time()
    used = max(now["cpu"] - before["cpu"], 0.0) / took / spec.cpu_cores
    return [
        {
            "timestamp": iso(at),
            "timestampUnix": int(at),
            "cpuCount": max(1, round(spec.cpu_cores)),
            "cpuUsedPct": round(100 * used, 2),
            "memUsed": now["memory"],
            "memTotal": spec.template().memory,
            "memCache": now["cache"] or 0,
            "diskUsed": now["disk"] or 0,
            "diskTotal": now["disk_size"] or spec.template().disk,
        }
    ]


async def _usage(instance: Instance, have: Services) -> dict[str, Any] | None:
    """Return a sidecar's figures; None from one of an earlier build. Raises Problem."""
    try:
        answer = await have.sidecars.usage(instance)
    except SidecarError as error:
        raise Problem(502, f"the sandbox did not answer: {error}; try again") from error
    if answer.status == 404:
        return None
    if answer.status in _OVER:
        raise Problem(404, "the sandbox was not found: it has ended")
    if answer.status != 200:
        raise Problem(502, f"the sandbox answered with status {answer.status}; try again")
    return document(answer)


def _wants_now(query: Mapping[str, list[str]]) -> bool:
    """Return whether the times of a query, in whole Unix seconds, include the present. Raises Problem."""
    now = int(time.time())
    try:
        start, end = (int(query.get(name, [str(now)])[0]) for name in ("start", "end"))
    except ValueError as error:
        raise Problem(400, "start and end: must be times in Unix seconds") from error
    return start - _SKEW <= now <= end + _SKEW
