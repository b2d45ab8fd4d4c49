"""The route of a run's report: what became of its sandboxes, what they used, and its slowest commands."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi import APIRouter, Response
from sandlot_contract.verdicts import INFRASTRUCTURE

from sandlot_gateway.audit.call import note
from sandlot_gateway.control.errors import errors
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import iso, json_response
from sandlot_gateway.control.run_models import RunReport
from sandlot_gateway.control.runs import RunIdText, counts_of, refused, run_document
from sandlot_gateway.control.services import Have, Services, Who
from sandlot_gateway.control.usage import LONGEST_DAYS, used_document
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.core.run_tally import RunCounts, total
from sandlot_gateway.core.runs import Lease, RunId, RunKey, RunUnknown
from sandlot_gateway.core.usage import HOUR
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.usage.sums import Used

router = APIRouter(prefix=PREFIX, tags=["runs"])

_LONGEST = LONGEST_DAYS * 24 * HOUR


@router.get(
    "/runs/{run_id}/report",
    response_model=RunReport,
    responses=errors(404),
    summary="(Sandlot) The report of a run",
)
async def run_report(run_id: RunIdText, have: Have, who: Who) -> Response:
    """Return what became of a run's sandboxes, what they used, and its slowest commands."""
    note(run=run_id)
    key = who.name, RunId(run_id)
    await have.learn_claims(who)
    try:
        lease = await have.runs.find(*key)
        usage = await _usage(have, lease)
    except (RunUnknown, BackendError) as error:
        raise refused(error) from error
    counted, silent = await _counted(have, key)
    counts = counts_of(have, who.name, run_id)
    # Records are forgotten after a while, and a gateway that is gone takes along what it has counted: both lack some.
    ends = Counter(counted.ends) | counts[1]
    return json_response(
        {
            "run": run_document(lease, counts),
            "ends": ends,
            "masked": {name: count for name, count in ends.items() if name in INFRASTRUCTURE},
            "starts": starts_of(have.directory.list(tenant=who.name, run=run_id, per_page=1 << 30).sandboxes),
            "usage": usage,
            "commands": _commands(counted, silent=silent),
        }
    )


async def _usage(have: Services, lease: Lease) -> dict[str, Any]:
    """Return what the run used. Raises BackendError."""
    now = time.time()
    since = min(max(lease.created_at, now - _LONGEST), now - 1.0)
    prices = have.prices.now
    groups = await have.accounts.between(
        since, now, group=lambda key: key.run == lease.id, tenant=lease.tenant, most=2, prices=prices
    )
    return {"since": iso(since // HOUR * HOUR), **used_document(groups.get(True, Used()), prices)}


async def _counted(have: Services, key: RunKey) -> tuple[RunCounts, int]:
    """Return what all gateways together have counted, and how many did not answer."""
    others = have.backend.others
    told = await others.run_counts(*key) if others is not None else []
    return total([have.runs.tally.of(key), *(one for one in told if one is not None)]), told.count(None)


def _commands(counted: RunCounts, *, silent: int) -> dict[str, Any]:
    return {
        "since": iso(counted.since),
        "silent_gateways": silent,
        "count": counted.count,
        "seconds": round(counted.seconds, 3),
        "queued_seconds": round(counted.queued_seconds, 3),
        "slowest": [
            {**msgspec.structs.asdict(one), "ended_at": iso(one.ended_at)} for one in counted.slowest
        ],
    }


def starts_of(sandboxes: Iterable[Sandbox]) -> dict[str, Any]:
    """Return how long the creates of those took that became RUNNING."""
    waits = [
        (max(sandbox.started_at - sandbox.created_at, 0.0), sandbox.queued)
        for sandbox in sandboxes
        if sandbox.started_at is not None
    ]
    return {
        "sandboxes": len(waits),
        "seconds": round(sum(wait for wait, _ in waits), 3),
        "longest_seconds": round(max((wait for wait, _ in waits), default=0.0), 3),
        "queued_seconds": round(sum(queued for _, queued in waits), 3),
    }
