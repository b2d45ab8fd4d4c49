"""SandboxFusion's API as an ASGI application: authenticates, runs code within the client's time, and answers."""

from __future__ import annotations

import asyncio
import logging

import msgspec
from fastapi import Response
from pydantic import ValidationError
from sandlot_contract.statuses import Status
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.audit.call import note
from sandlot_gateway.control.services import Services
from sandlot_gateway.credentials import bearer
from sandlot_gateway.data.answers import Receive, Scope, Send
from sandlot_gateway.data.disconnects import wait_for_disconnect
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.fusion_option import Place, parse_places
from sandlot_gateway.keys import Tenant
from sandlot_gateway.settings import Settings
from sandlot_gateway.tasks import Tasks

from .body_budget import BodyAccount, BodyBudget
from .cells_job import CellsJob, RunJupyterRequest
from .creating import Creator
from .entries import MOST, has_too_many
from .execution import CodeJob
from .groups import Misconfigured, NoWorker, Worker
from .job import Job
from .key_path import PATHS, PING, RUN_JUPYTER
from .patience import BadPatience, patience_of, pause_after
from .sandbox import BadInput, Lost, SandboxClient
from .wire import RunCodeRequest
from .workers import Workers

_log = logging.getLogger(__name__)

MAX_BODY = 32 << 20  # bytes; test cases are in the body
# verl waits for the two time limits and these seconds, then gives up for good; a 504 before that, it repeats.
_CLIENT_GRACE = 10.0
_MARGIN = 1.5  # seconds for the answer to reach the client
_OVERHEAD = 0.5  # seconds for the files of a request
_MOST_SHOWN = 300  # characters of a text in a 422
_ENDED_BY_CODE = frozenset((SandboxVerdict.OOM, SandboxVerdict.INIT_KILLED, SandboxVerdict.EXITED))


class Fusion:
    """Serves the paths of PATHS."""

    paths = PATHS
    max_body = MAX_BODY

    def __init__(self, have: Services, *, pool: HttpPool, places: dict[str | None, Place]) -> None:
        settings = have.settings
        creator = Creator(have, idle=settings.fusion_idle, network=settings.fusion_network)
        self._have = have
        self._pool = pool
        self._places = places
        self._workers = Workers(
            create=creator.create,
            reset=have.lifecycle.reset,
            delete=have.lifecycle.ends.delete,
            has_room=lambda who, sandbox: have.lifecycle.admission.has_room(who, sandbox.spec),
            limit=settings.fusion_sandboxes,
            idle=settings.fusion_idle,
        )
        self._running = Tasks()
        self._bodies = BodyBudget()
        self._draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._respond(scope, receive)
        if response is not None:
            await response(scope, receive, send)

    def account(self, scope: Scope) -> BodyAccount:
        """Return what counts the bytes of this request's body until its answer begins."""
        who = self._caller(scope)
        return self._bodies.account("" if who is None else who.name)

    async def drain(self, *, timeout: float) -> None:
        """Answer new requests with 504, wait up to `timeout` seconds for those that run, and answer the rest so, too."""
        self._draining = True
        self._workers.drain()
        await self._running.close(timeout=timeout)

    async def close(self, *, timeout: float) -> None:
        """Delete the sandboxes."""
        await self.drain(timeout=0.0)
        await self._workers.close(timeout=timeout)

    async def _respond(self, scope: Scope, receive: Receive) -> Response | None:
        who = self._caller(scope)
        if who is None:
            text = "the API key is missing or unknown: send Authorization: Bearer KEY, or use /fusion/KEY/run_code"
            return _error(401, text, {"www-authenticate": "Bearer"})
        path: str = scope["path"]
        wanted = "GET" if path == PING else "POST"
        if scope["method"] != wanted:
            return _error(405, f"the method must be {wanted}", {"allow": wanted})
        if path == PING:
            return _json(200, "pong")
        if self._draining:
            return _retry("the gateway is shutting down")
        body = (await receive()).get("body", b"")
        if has_too_many(body):
            return _error(422, f"the body has too many entries: at most {MOST} in all are allowed")
        try:
            patience = patience_of(scope["query_string"])
            job = _job(path, body)
        except BadPatience as error:
            return _json(422, {"detail": error.as_detail()})
        except ValidationError as error:
            return _invalid(error)
        del body  # a request that waits holds it only once, as parsed
        return await self._until_answered(job, who, receive, patience=patience)

    def _caller(self, scope: Scope) -> Tenant | None:
        authorization = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return self._have.keys.find(bearer(authorization))

    async def _until_answered(
        self, job: Job, who: Tenant, receive: Receive, *, patience: float
    ) -> Response | None:
        """Run the request unless its client leaves; then its code is killed."""
        work = self._running.spawn(self._run(job, who, patience=patience))
        gone = asyncio.get_running_loop().create_task(wait_for_disconnect(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                note(left=True)
                return None
            if work.cancelled():
                return _retry("the gateway is shutting down")
            if (error := work.exception()) is not None:
                _log.error("a request to run code failed in an unexpected way", exc_info=error)
                return _retry("an unexpected failure in the gateway, whose log has the cause")
            return work.result()
        finally:
            gone.cancel()
            work.cancel()

    async def _run(self, job: Job, who: Tenant, *, patience: float) -> Response:
        loop = asyncio.get_running_loop()
        end = loop.time() + job.granted + _CLIENT_GRACE - _MARGIN + patience
        place = self._places.get(job.language) or self._places.get(None)
        try:
            latest = end - job.longest() - _OVERHEAD
            if place is None:
                raise BadInput(f"language {job.language!r} has no image here: add one to --fusion")
        except BadInput as error:
            return _json(200, job.sandbox_error(str(error), sandbox=None))
        why = ""
        ran = unused = 0
        while (left := latest - loop.time()) > 0:
            try:
                async with (
                    self._workers.lease(who, place, timeout=left) as worker,
                    asyncio.timeout(end - loop.time()),
                ):
                    return await self._run_in(worker, job, place)
            except NoWorker as error:
                return _retry(str(error))
            except Misconfigured as error:
                note(error="misconfigured")
                return _error(503, str(error))
            except TimeoutError:
                return _retry("the sandbox did not answer in the request's time")
            except Lost as error:
                ran += error.ran
                unused += not error.ran
                why = str(error)
                _log.warning("the sandbox of code was lost: %s", why)
                pause = pause_after(ran, unused=unused, patience=patience)
                if pause is None or loop.time() + pause >= latest:
                    break
                await asyncio.sleep(pause)
        return _retry(f"the sandbox was lost, and no time is left for another one: {why}")

    async def _run_in(self, worker: Worker, job: Job, place: Place) -> Response:
        sandbox = worker.sandbox
        note(sandbox=sandbox.id)
        route = self._have.directory.find(sandbox.id)
        if route is None or route.status is not Status.RUNNING:
            raise Lost(f"the sandbox has ended: {sandbox.verdict or 'unknown'}", ran=False)
        client = SandboxClient(self._pool, route)
        try:
            answer = await job.run(client, programs=worker.programs, place=str(place), sandbox=sandbox.id)
        except BadInput as error:
            return _json(200, job.sandbox_error(str(error), sandbox=sandbox.id))
        except Lost:
            worker.reusable = False
            verdict = sandbox.verdict or await client.end_verdict()
            if verdict in _ENDED_BY_CODE:
                return _json(200, job.ended_by_code(str(verdict), sandbox=sandbox.id))
            raise
        return _json(200, answer)


def fusion_of(settings: Settings, have: Services, *, pool: HttpPool) -> Fusion | None:
    """Return the application of a gateway with these settings; None if it is off."""
    places = parse_places(settings.fusion)
    return Fusion(have, pool=pool, places=places) if places else None


def _job(path: str, body: bytes) -> Job:
    if path == RUN_JUPYTER:
        return CellsJob(RunJupyterRequest.model_validate_json(body))
    return CodeJob(RunCodeRequest.model_validate_json(body))


def _json(status: int, document: object, headers: dict[str, str] | None = None) -> Response:
    body = msgspec.json.encode(document)
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def _error(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    return _json(status, {"detail": detail}, headers)


def _retry(why: str) -> Response:
    """Return the one error that SandboxFusion's clients repeat."""
    note(error="no_sandbox")
    return _error(504, f"the code did not run: {why}; send the request again", {"retry-after": "1"})


def _invalid(error: ValidationError) -> Response:
    """Return a 422 in FastAPI's form, without the values; names of files in it may be long, so they are cut."""
    found = [
        {"type": one["type"], "loc": ["body", *(_cut(part) for part in one["loc"])], "msg": _cut(one["msg"])}
        for one in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    return _json(422, {"detail": found})


def _cut(text: str | int) -> str | int:
    return text[:_MOST_SHOWN] if isinstance(text, str) else text
