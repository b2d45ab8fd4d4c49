"""Routes of SSH sessions, as Prime's clients use them since 0.4: a key that may log in to a sandbox for a while."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.audit.call import note
from sandlot_gateway.control.errors import ApiError, body_errors, errors, not_kept
from sandlot_gateway.control.field_types import SshSeconds, Strict
from sandlot_gateway.control.models import Done
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import iso, json_response
from sandlot_gateway.control.services import Have, Owned, Services
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.ssh.sessions import NotInstalled, SshError, SshSessions

router = APIRouter(prefix=PREFIX, tags=["ssh"])

_TTL = 900  # seconds


class SshRequest(Strict):
    public_key: str | None = Field(
        None,
        max_length=16384,
        description="In the format of authorized_keys; required (422 for clients before 0.4).",
    )
    ttl_seconds: SshSeconds | None = Field(None, description=f"Lifetime in seconds; default {_TTL}.")


class SshResponse(BaseModel):
    session_id: str = Field(description="The user name to log in with.")
    sandbox_id: SandboxId
    host: str
    port: int
    expires_at: str
    ttl_seconds: int


@router.post(
    "/sandbox/{sandbox_id}/ssh-session",
    response_model=SshResponse,
    responses=body_errors(404, 409, 501),
    summary="Create an SSH session for a key",
)
async def create(sandbox: Owned, body: SshRequest, request: Request, have: Have) -> Response:
    sessions = _sessions(have)
    if body.public_key is None:
        text = "public_key: required; update clients before 0.4, which send it to the data plane instead"
        raise ApiError(422, text, field="public_key")
    if sandbox.status is not Status.RUNNING:
        raise ApiError(409, f"the sandbox is {sandbox.status}: an SSH session needs a RUNNING one")
    ttl = body.ttl_seconds or _TTL
    try:
        session = await sessions.add(sandbox.id, sandbox.tenant, public_key=body.public_key, ttl=ttl)
    except NotInstalled as error:
        raise ApiError(501, f"not implemented: {error}") from error
    except BackendError as error:
        raise not_kept(error) from error
    except SshError as error:
        if error.field is None:
            raise ApiError(409, str(error)) from error
        raise ApiError(422, str(error), field=error.field) from error
    note(credential=session.id)
    return json_response(
        {
            "session_id": session.id,
            "sandbox_id": sandbox.id,
            "host": have.settings.ssh_public_host or request.url.hostname or have.settings.host,
            "port": have.settings.ssh_public_port or sessions.port,
            "expires_at": iso(session.expires_at),
            "ttl_seconds": session.ttl,
        }
    )


@router.delete(
    "/sandbox/{sandbox_id}/ssh-session/{session_id}",
    response_model=Done,
    responses=errors(404, 501),
    summary="Delete an SSH session and close its connections",
)
async def remove(sandbox: Owned, session_id: str, have: Have) -> Response:
    sessions = _sessions(have)
    session = await sessions.found(session_id)
    if session is None or session.sandbox_id != sandbox.id:
        raise ApiError(404, "no such SSH session: it was deleted, it expired, or its sandbox has ended")
    try:
        await sessions.remove(session)
    except BackendError as error:
        raise not_kept(error) from error
    return json_response({"success": True, "message": "removed"})


def _sessions(have: Services) -> SshSessions:
    if have.ssh is None:
        raise ApiError(501, "not configured: this server has no port for SSH; set gateway.ssh.port")
    return have.ssh
