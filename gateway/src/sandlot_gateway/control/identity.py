"""Routes that return the caller's identity and quotas."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from fastapi.security import HTTPAuthorizationCredentials
from pydantic import BaseModel

from sandlot_gateway.control.errors import errors
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import json_response
from sandlot_gateway.control.services import Have, Who, bearer

router = APIRouter(prefix=PREFIX, tags=["identity"])


class Me(BaseModel):
    id: str
    email: str
    name: str
    slug: str
    scope: dict[str, Any]
    account_limits: dict[str, int | None]
    key_limits: dict[str, int | None]


class WhoAmI(BaseModel):
    data: Me


@router.get("/user/whoami", response_model=WhoAmI, responses=errors(), summary="The tenant of this API key")
async def whoami(
    have: Have, who: Who, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
) -> Response:
    key = have.tokens.fingerprint(credentials.credentials) if credentials is not None else None
    limits = {"max_concurrent_sandboxes": who.max_sandboxes}
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
            }
        }
    )
