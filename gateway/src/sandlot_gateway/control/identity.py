"""Routes that return the caller's identity and quotas."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from fastapi.security import HTTPAuthorizationCredentials
from pydantic import BaseModel, Field

from sandlot_gateway.control.errors import errors
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import json_response
from sandlot_gateway.control.services import Have, Who, bearer
from sandlot_gateway.quotas import QuotaName

router = APIRouter(prefix=PREFIX, tags=["identity"])


class QuotaUse(BaseModel):
    """A limit of the tenant and what is used of it; `weight` limits nothing, and is its share of the queue's turns."""

    name: QuotaName
    limit: float | None = Field(description="null: no limit.")
    used: float | None = Field(description="null: not measured.")


class Me(BaseModel):
    id: str
    email: str
    name: str
    slug: str
    scope: dict[str, Any]
    account_limits: dict[str, int | None]
    key_limits: dict[str, int | None]
    quotas: list[QuotaUse]


class WhoAmI(BaseModel):
    data: Me


@router.get("/user/whoami", response_model=WhoAmI, responses=errors(), summary="The tenant of this API key")
async def whoami(
    have: Have, who: Who, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
) -> Response:
    key = have.tokens.fingerprint(credentials.credentials) if credentials is not None else None
    await have.learn_claims(who)
    uses = [one._asdict() for one in have.lifecycle.admission.uses(who)]
    stored = await have.checkpoints.used_by(who.name) if have.checkpoints is not None else None
    quotas = have.quotas.of(who)
    uses.append({"name": QuotaName.CHECKPOINT_BYTES, "limit": quotas.checkpoint_bytes, "used": stored})
    uses.append({"name": QuotaName.WEIGHT, "limit": quotas.weight or 1, "used": None})
    limits = {"max_concurrent_sandboxes": quotas.sandboxes}
    return json_response(
        {
            "data": {
                "id": who.name,
                "email": "",
                "name": who.name,
                "slug": who.name,
                "scope": {"role": who.role, "key": key},
                "account_limits": limits,
                "key_limits": limits,
                "quotas": uses,
            }
        }
    )
