"""The route of the accounting: what tenants and runs used between two times."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime

from sandlot_gateway.control.errors import ApiError, errors
from sandlot_gateway.control.field_types import Text
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import iso, json_response
from sandlot_gateway.control.services import Have, Who
from sandlot_gateway.control.usage_models import UsageResponse
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.core.costs import Cost, Prices
from sandlot_gateway.core.costs import text as decimal
from sandlot_gateway.core.usage import HOUR, Key
from sandlot_gateway.usage.sums import TooManyGroups, Used

router = APIRouter(prefix=PREFIX, tags=["usage"])

_ROWS = 10_000
_DAY = 24 * HOUR
LONGEST_DAYS = 31
GroupBy = Literal["tenant", "run", "hour", "day"]


@router.get(
    "/usage",
    response_model=UsageResponse,
    responses=errors(403, 422),
    summary="(Sandlot) Usage by tenant and run",
)
async def usage(
    have: Have,
    who: Who,
    since: Annotated[
        AwareDatetime | None, Query(description="At most 31 days before `until`; default: a day.")
    ] = None,
    until: Annotated[AwareDatetime | None, Query(description="Default: now.")] = None,
    group_by: Annotated[list[GroupBy] | None, Query(description="Repeat; default: tenant and run.")] = None,
    tenant: Annotated[Text | None, Query(max_length=64, description="Only of this tenant.")] = None,
) -> Response:
    """Return what sandboxes used, in whole hours; those that run are counted up to now.

    A key with the role use gets its own tenant's, one with the role operate all tenants'.
    """
    now = time.time()
    end = min(now, until.timestamp()) if until is not None else now
    begin = max(since.timestamp() if since is not None else end - _DAY, 0.0)
    if end <= 0:
        raise ApiError(422, "until: must be after 1970-01-01T00:00:00Z", field="until")
    if begin >= end:
        raise ApiError(422, "since: must be before until, and in the past", field="since")
    if end - begin > LONGEST_DAYS * _DAY + HOUR:  # an hour more, since clocks are put back
        text = f"since: more than {LONGEST_DAYS} days before until; ask for the time in parts"
        raise ApiError(422, text, field="since")
    if not who.operates:
        if tenant not in (None, who.name):
            text = "tenant: only a key with the role operate may read another tenant's usage; omit the field"
            raise ApiError(403, text, field="tenant")
        tenant = who.name
    fields = frozenset(group_by or ("tenant", "run"))
    prices = have.prices.now
    try:
        groups = await have.accounts.between(
            begin, end, group=lambda key: _group(key, fields), tenant=tenant, most=_ROWS, prices=prices
        )
    except TooManyGroups as error:
        text = f"group_by: more than the {_ROWS} rows that an answer has; ask for a shorter time, or fewer groups"
        raise ApiError(422, text, field="group_by") from error
    except BackendError as error:
        text = f"the usage cannot be read: {error}; try again"
        raise ApiError(503, text, headers={"Retry-After": "2"}) from error
    return json_response(
        {
            "since": iso(begin // HOUR * HOUR),
            "until": iso(-(-end // HOUR) * HOUR),
            "usage": [_row(*group, used, prices) for group, used in sorted(groups.items(), key=_order)],
        }
    )


def _group(key: Key, fields: frozenset[GroupBy]) -> tuple[str | None, str | None, float | None]:
    at = key.hour * HOUR
    begin = at if "hour" in fields else at // _DAY * _DAY if "day" in fields else None
    return key.tenant if "tenant" in fields else None, (key.run or None) if "run" in fields else None, begin


def _order(item: tuple[tuple[str | None, str | None, float | None], Used]) -> tuple[float, str, str]:
    tenant, run, begin = item[0]
    return begin or 0.0, tenant or "", run or ""


def _row(
    tenant: str | None, run: str | None, begin: float | None, used: Used, prices: Prices | None
) -> dict[str, Any]:
    at = None if begin is None else datetime.fromtimestamp(begin, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "tenant": tenant,
        "run": run,
        "time": at,
        **used_document(used, prices),
    }


def used_document(used: Used, prices: Prices | None) -> dict[str, Any]:
    """Return what was used, and what it costs by these prices, by which it was summed."""
    amounts = used.amounts
    return {
        "sandboxes": amounts.sandboxes,
        "sandbox_seconds": round(amounts.seconds, 3),
        "core_seconds": round(amounts.core_seconds, 3),
        "memory_gib_seconds": round(amounts.memory_gib_seconds, 3),
        "disk_gib_seconds": round(amounts.disk_gib_seconds, 3),
        "gpu_seconds": round(amounts.gpu_seconds, 3),
        "cost": _cost_document(used.cost or Cost(), prices) if prices is not None else None,
    }


def _cost_document(cost: Cost, prices: Prices) -> dict[str, Any]:
    return {
        "currency": prices.currency,
        "total": decimal(cost.total),
        "cores": decimal(cost.cores),
        "memory": decimal(cost.memory),
        "disk": decimal(cost.disk),
        "gpus": decimal(cost.gpus),
    }
