"""Routes that Prime's container clients call before a create: registry credentials, and a check of the image."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from sandlot_gateway.control.errors import body_errors, errors
from sandlot_gateway.control.field_types import Strict, Text
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import json_response
from sandlot_gateway.control.services import Have, Who, images_refusal
from sandlot_gateway.core.backend import BackendError

router = APIRouter(prefix=f"{PREFIX}/template", tags=["images"])

_CHECK_TIMEOUT = 20.0  # seconds; the clients give up after 30


class Credentials(BaseModel):
    credentials: list[dict[str, Any]] = Field(description="Always empty: the nodes have their own.")


class CheckRequest(Strict):
    image: Text = Field(min_length=1, max_length=1024)
    registry_credentials_id: str | None = Field(None, max_length=128, description="Ignored.")


class CheckResponse(BaseModel):
    accessible: bool
    details: str
    checked: bool = Field(
        description="(Sandlot) false: only name and registry were checked; a start may still fail."
    )


@router.get(
    "/registry-credentials",
    response_model=Credentials,
    responses=errors(),
    summary="Registry credentials (always none)",
)
async def credentials(who: Who) -> Response:
    return json_response({"credentials": []})


@router.post(
    "/check-docker-image",
    response_model=CheckResponse,
    responses=body_errors(),
    summary="Check an image",
)
async def check(body: CheckRequest, have: Have, who: Who) -> Response:
    why = images_refusal(body.image, have=have, who=who)
    if why is not None:
        return _answer(False, why)
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT):
            found = await have.backend.check_image(body.image)
    except BackendError as error:
        return _answer(False, str(error))
    except TimeoutError:
        text = f"not known yet: the pull still runs after {_CHECK_TIMEOUT:g} s; check again later"
        return _answer(True, text, checked=False)
    return _answer(True, found.details, checked=found.checked)


def _answer(accessible: bool, details: str, *, checked: bool = True) -> Response:
    return json_response({"accessible": accessible, "details": details, "checked": checked})
