"""Routes for image warm-ups: prepare the images of a data set before its sandboxes are created."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from dataclasses import asdict
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Response
from sandlot_contract.warmups import MAX_BYTES

from sandlot_gateway.audit.call import note
from sandlot_gateway.control.errors import ApiError, body_errors, errors, not_kept
from sandlot_gateway.control.models import Done
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import iso, json_response
from sandlot_gateway.control.services import Have, Services, Who, images_refusal
from sandlot_gateway.control.translate import check_image
from sandlot_gateway.control.warmup_models import WarmupList, WarmupRequest, WarmupResponse
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.core.warmups import Warmup, WarmupId, WarmupSpec, WarmupState
from sandlot_gateway.keys import Tenant

router = APIRouter(prefix=PREFIX, tags=["images"])

_UNFINISHED = 10  # warm-ups of one tenant at a time
_ID = re.compile(r"warmup-[0-9a-f]{16}\Z")
WarmupIdText = Annotated[str, Path(min_length=1, max_length=128)]


@router.post(
    "/image-warmups",
    status_code=201,
    response_model=WarmupResponse,
    responses=body_errors(),
    summary="(Sandlot) Prepare images",
)
async def create_warmup(body: WarmupRequest, have: Have, who: Who) -> Response:
    """Begin to prepare images, and return at once; images that are ready already cost nothing."""
    images: Counter[str] = Counter()
    for number, one in enumerate(body.images):
        if one.image not in images:
            check_image(
                one.image,
                field=f"images.{number}.image",
                refusal=lambda image: images_refusal(image, have=have, who=who),
            )
        images[one.image] += one.weight
    size = len(msgspec.json.encode(images))
    if size > MAX_BYTES:
        text = (
            f"images: their names and weights take {size} bytes, and a warm-up may have {MAX_BYTES}; "
            "create several warm-ups of fewer images"
        )
        raise ApiError(422, text, field="images")
    spec = WarmupSpec(WarmupId(f"warmup-{secrets.token_hex(8)}"), who.name, images)
    try:
        running = [one for one in await have.backend.warmups.all() if one.state is not WarmupState.DONE]
        if sum(one.spec.tenant == who.name for one in running) >= _UNFINISHED:
            text = (
                f"images: tenant {who.name!r} already has {_UNFINISHED} warm-ups that are not done; "
                "wait for one, or delete one"
            )
            raise ApiError(422, text, field="images")
        made = await have.backend.warmups.create(spec)
    except BackendError as error:
        raise not_kept(error) from error
    note(id=made.spec.id)
    return json_response(_document(made), status=201)


@router.get(
    "/image-warmups",
    response_model=WarmupList,
    responses=errors(),
    summary="(Sandlot) Image warm-ups",
)
async def list_warmups(have: Have, who: Who) -> Response:
    """Return the tenant's warm-ups; with the role operate, all. Finished ones are shown for an hour."""
    try:
        found = await have.backend.warmups.all()
    except BackendError as error:
        raise not_kept(error) from error
    return json_response({"warmups": [_document(one) for one in found if _may_see(one, who)]})


@router.get(
    "/image-warmups/{warmup_id}",
    response_model=WarmupResponse,
    responses=errors(404),
    summary="(Sandlot) Progress of a warm-up",
)
async def get_warmup(warmup_id: WarmupIdText, have: Have, who: Who) -> Response:
    """Return how many images are ready, which failed, and an estimate of the time left."""
    return json_response(_document(await _find(warmup_id, have=have, who=who)))


@router.delete(
    "/image-warmups/{warmup_id}",
    response_model=Done,
    responses=errors(404),
    summary="(Sandlot) Stop a warm-up",
)
async def delete_warmup(warmup_id: WarmupIdText, have: Have, who: Who) -> Response:
    """Stop and forget a warm-up; images that are ready stay, and those in preparation are finished."""
    found = await _find(warmup_id, have=have, who=who)
    try:
        deleted = await have.backend.warmups.delete(found.spec.id)
    except BackendError as error:
        raise not_kept(error) from error
    if not deleted:
        raise _not_found(warmup_id)
    return json_response({"success": True, "message": "deleted"})


async def _find(warmup_id: str, *, have: Services, who: Tenant) -> Warmup:
    try:
        found = await have.backend.warmups.find(WarmupId(warmup_id)) if _ID.match(warmup_id) else None
    except BackendError as error:
        raise not_kept(error) from error
    if found is None or not _may_see(found, who):
        raise _not_found(warmup_id)
    return found


def _may_see(warmup: Warmup, who: Tenant) -> bool:
    return who.operates or warmup.spec.tenant == who.name


def _not_found(warmup_id: str) -> ApiError:
    return ApiError(
        404, f"no image warm-up {warmup_id!r}: it was deleted, or finished more than an hour ago"[:300]
    )


def _document(warmup: Warmup) -> dict[str, Any]:
    left = warmup.seconds_left
    return {
        "id": warmup.spec.id,
        "tenant": warmup.spec.tenant,
        "state": warmup.state,
        "created_at": iso(warmup.created_at),
        "finished_at": iso(warmup.finished_at),
        "images": len(warmup.spec.images),
        "images_ready": warmup.ready,
        "images_failed": warmup.failed,
        "copies": warmup.copies,
        "copies_ready": warmup.copies_ready,
        "bytes": warmup.bytes,
        "seconds_left": None if left is None else round(left, 1),
        "errors": [asdict(error) for error in warmup.errors],
        "message": warmup.message,
    }
