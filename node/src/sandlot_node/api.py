"""The node agent's HTTP API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any, cast

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from sandlot_contract.node_agent import LONGEST_WAIT

from . import models
from .failures import ImageError, Kind
from .gate import TokenGate
from .images import Image, ImageId, SlotId, is_image_id
from .machine import own_platform
from .metrics import Metrics
from .preparer import Preparer
from .requests import Request as Wanted

_log = logging.getLogger(__name__)

_STATUS = {
    Kind.INVALID: 422,
    Kind.NOT_ALLOWED: 403,
    Kind.UNAUTHORIZED: 403,
    Kind.NOT_FOUND: 404,
    Kind.IN_USE: 409,
    Kind.WRONG_PLATFORM: 422,
    Kind.UNSUPPORTED: 501,
    Kind.NO_SPACE: 507,
    Kind.UNAVAILABLE: 503,
    Kind.FAILED: 502,
}
# The field that a failure is about.
_PARAM = {
    Kind.INVALID: "image",
    Kind.NOT_ALLOWED: "image",
    Kind.UNAUTHORIZED: "auth",
    Kind.WRONG_PLATFORM: "image",
}


class _BadField(Exception):
    def __init__(self, param: str, details: str) -> None:
        super().__init__(details)
        self.param = param


class Routes:
    """The routes of one agent."""

    def __init__(self, preparer: Preparer, metrics: Metrics) -> None:
        self._preparer = preparer
        self._metrics = metrics

    def router(self) -> APIRouter:
        failures: dict[int | str, dict[str, Any]] = {
            status: {"model": models.ErrorBody} for status in sorted({401, *_STATUS.values()})
        }
        router = APIRouter(responses=failures)
        add = router.add_api_route
        preparing: dict[int | str, dict[str, Any]] = {202: {"model": models.ProgressBody}}
        add(
            "/v1/images",
            self.prepare,
            methods=["POST"],
            response_model=models.UsedImageBody | models.ImageBody,
            responses=preparing,
        )
        add("/v1/images", self.images, methods=["GET"])
        add("/v1/images/{image_id}", self.image, methods=["GET"])
        add("/v1/images/{image_id}", self.delete, methods=["DELETE"], status_code=204)
        add("/v1/images/{image_id}/uses", self.use, methods=["POST"])
        add("/v1/images/{image_id}/uses/{slot}", self.unuse, methods=["DELETE"], status_code=204)
        add("/v1/usage", self.usage, methods=["GET"])
        add("/healthz", self.healthz, methods=["GET"], include_in_schema=False)
        add("/metrics", self.numbers, methods=["GET"], include_in_schema=False)
        return router

    async def prepare(
        self,
        body: models.PrepareBody,
        wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT)] = 0.0,
        slot: Annotated[str | None, Query(min_length=1, max_length=253)] = None,
    ) -> models.ImageBody | JSONResponse:
        """Prepare an image, or tell how far its preparation is; a caller repeats this until the answer is not 202.

        `slot`: uses the image if it is there already; then the answer has `since`.
        """
        if body.auth is not None and body.tenant is None:
            raise _BadField("tenant", "required with `auth`, whose tenant it names")
        auth = None if body.auth is None else body.auth.auth()
        if auth is not None and not (auth.username or auth.identity_token):
            raise _BadField("auth", "needs `username` with `password`, or `identity_token`")
        wanted = Wanted(reference=body.image, tenant=body.tenant, auth=auth)
        if slot is not None and (there := self._preparer.find(wanted)) is not None:
            return self._used(there.id, SlotId(slot))
        found = await self._preparer.prepare(wanted, wait=wait)
        if isinstance(found, Image):
            return self._body(found)
        answer = models.ProgressBody(phase=found.phase, done=found.done, total=found.total)
        return JSONResponse(answer.model_dump(), status_code=202)

    async def images(self, brief: bool = False) -> models.ImagesBody | models.BriefImagesBody:
        """List the prepared images; `brief`: only what tells of their names and space, and of what comes."""
        images = self._preparer.images()
        if brief:
            entries = self._preparer.ledger.entries
            return models.BriefImagesBody(
                images=[models.brief_body(entries[image.id]) for image in images],
                preparing=self._preparer.preparing(),
            )
        return models.ImagesBody(images=[self._body(image) for image in images])

    async def image(self, image_id: str) -> models.ImageBody:
        """Tell of one prepared image."""
        return self._body(self._preparer.image(_image_id(image_id)))

    async def delete(self, image_id: str) -> None:
        """Release an image that no slot uses."""
        await self._preparer.delete(_image_id(image_id))

    async def use(self, image_id: str, body: models.UseBody) -> models.UsedImageBody:
        """Record that a slot uses an image, which then stays until the slot ends."""
        return self._used(_image_id(image_id), SlotId(body.slot))

    def _used(self, image_id: ImageId, slot: SlotId) -> models.UsedImageBody:
        since = self._preparer.use(image_id, slot)
        image = self._body(self._preparer.image(image_id))
        return models.UsedImageBody(**image.model_dump(), since=since)

    async def unuse(self, image_id: str, slot: str, until: float | None = None) -> None:
        """Record that a slot no longer uses an image, unless it began to after `until`; others change nothing."""
        self._preparer.unuse(_image_id(image_id), SlotId(slot), until=until)

    async def usage(self) -> models.UsageBody:
        """Tell what the images take of the disk."""
        ledger = self._preparer.ledger
        return models.UsageBody(
            platform=own_platform(),
            budget=ledger.budget,
            used=ledger.used(),
            free=await self._preparer.free(),
            images=len(ledger.entries),
            in_use=sum(bool(entry.uses) for entry in ledger.entries.values()),
        )

    async def healthz(self) -> Response:
        """Answer the kubelet's probes."""
        return Response("ok\n", media_type="text/plain")

    async def numbers(self) -> Response:
        """Answer Prometheus."""
        return Response(self._metrics.text(self._preparer.ledger), media_type=CONTENT_TYPE_LATEST)

    def _body(self, image: Image) -> models.ImageBody:
        return models.image_body(image, self._preparer.ledger.entries[image.id])


def _image_id(text: str) -> ImageId:
    if not is_image_id(text):
        raise _BadField("image_id", "must be an image's id, `sha256:` with 64 hexadecimal digits")
    return ImageId(text)


def _error(
    status: int, code: str, detail: str, errors: list[dict[str, str]], headers: dict[str, str] | None = None
) -> JSONResponse:
    return JSONResponse(
        {"code": code, "detail": detail, "errors": errors}, status_code=status, headers=headers
    )


async def _image_error(_: Request, error: Exception) -> JSONResponse:
    failure = cast("ImageError", error)
    param = _PARAM.get(failure.kind)
    errors = [] if param is None else [{"param": param, "details": failure.message}]
    headers = {"Retry-After": "2"} if failure.kind is Kind.UNAVAILABLE else None
    return _error(_STATUS[failure.kind], failure.kind, failure.message, errors, headers)


async def _bad_field(_: Request, error: Exception) -> JSONResponse:
    field = cast("_BadField", error)
    return _error(
        422, Kind.INVALID, f"{field.param}: {field}", [{"param": field.param, "details": str(field)}]
    )


async def _bad_request(_: Request, error: Exception) -> JSONResponse:
    """Name the fields; never show their values, which may be credentials."""
    errors: list[dict[str, str]] = []
    for one in cast("RequestValidationError", error).errors():
        place = [str(part) for part in one["loc"] if part not in ("body", "query", "path")]
        errors.append({"param": ".".join(place) or "body", "details": str(one["msg"])})
    detail = "; ".join(f"{one['param']}: {one['details']}" for one in errors)
    return _error(422, Kind.INVALID, detail, errors)


async def _unexpected(_: Request, error: Exception) -> JSONResponse:
    _log.error("unexpected failure: %s", error, exc_info=error)
    return _error(500, Kind.FAILED, "unexpected failure in the node agent; its log has the cause", [])


def build(preparer: Preparer, metrics: Metrics, *, token: str, housekeeping: float) -> FastAPI:
    """Return the application, for a preparer that was started; it keeps house while it runs, and stops it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        house = asyncio.create_task(_housekeep(preparer, housekeeping))
        try:
            yield
        finally:
            house.cancel()
            await asyncio.gather(house, return_exceptions=True)
            await preparer.stop()

    app = FastAPI(title="Sandlot's node agent", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.include_router(Routes(preparer, metrics).router())
    app.add_exception_handler(ImageError, _image_error)
    app.add_exception_handler(_BadField, _bad_field)
    app.add_exception_handler(RequestValidationError, _bad_request)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(TokenGate, token=token)
    return app


async def _housekeep(preparer: Preparer, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await preparer.housekeep()
        except ImageError as error:
            _log.warning("could not look for pods that are gone, or release images: %s", error)
        except Exception:
            _log.exception("housekeeping failed")
