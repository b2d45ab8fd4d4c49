"""Routes that show the commands of a sandbox, as its sidecar knows them; reading them is no use of the sandbox."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field
from sandlot_contract.statuses import Status

from sandlot_gateway.control.errors import ApiError, errors
from sandlot_gateway.control.paths import PREFIX
from sandlot_gateway.control.present import iso, json_response
from sandlot_gateway.control.services import Have, Seen, Services
from sandlot_gateway.core.bad_json import NOT_JSON
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.data.answers import TOKEN_REJECTED
from sandlot_gateway.data.pool import Answer
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.sidecars import SidecarError

router = APIRouter(prefix=PREFIX, tags=["sandboxes"])

_ENDED = "the sandbox does not run: its commands are known only while it runs"
_NO_SLOT = "this gateway does not know the sandbox's slot yet: try again"
_OLDER = "the sandbox's sidecar is of an earlier version, which does not list commands"

OpId = Annotated[str, Path(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]


class Command(BaseModel):
    op_id: str
    command: str = Field(description="Its first 256 characters.")
    start_command: bool
    state: Literal["queued", "running", "ended"]
    verdict: str | None
    message: str | None
    exit_code: int | None
    signal: int | None
    started_at: str | None
    ended_at: str | None
    wall: float = Field(description="Seconds.")
    cpu: float = Field(description="Seconds.")
    peak_memory: int = Field(description="Bytes.")
    stdout_bytes: int
    stderr_bytes: int
    truncated: bool


class CommandList(BaseModel):
    commands: list[Command] = Field(description="Newest first.")
    total: int = Field(
        description="Those that the sandbox knows: all that run, and ended ones for 10 minutes."
    )
    unknown: str | None = Field(description="Why commands are not known.")


class CommandOutput(BaseModel):
    output: str


class _Usage(msgspec.Struct):
    wall: float
    cpu: float
    peak_memory: int


class _Op(msgspec.Struct):
    """One command as the sidecar describes it."""

    op_id: str
    command: str
    start_command: bool
    state: Literal["queued", "running", "ended"]
    verdict: str | None
    message: str | None
    exit_code: int | None
    signal: int | None
    started_at: float | None
    ended_at: float | None
    stdout_bytes: int
    stderr_bytes: int
    truncated: bool
    usage: _Usage


class _List(msgspec.Struct):
    commands: list[_Op]
    total: int


@router.get(
    "/sandbox/{sandbox_id}/commands",
    response_model=CommandList,
    responses=errors(404, 502),
    summary="(Sandlot) The commands of a sandbox",
)
async def list_commands(
    sandbox: Seen, have: Have, limit: Annotated[int, Query(ge=1, le=500)] = 100
) -> Response:
    """Return the last commands; none, and why, if the sandbox does not run."""
    instance = _instance(sandbox, have)
    if instance is None:
        why = _NO_SLOT if sandbox.status is Status.RUNNING else _ENDED
        return json_response({"commands": [], "total": 0, "unknown": why})
    answer = await _look(have, instance, "/v1/commands", {"of": sandbox.id, "last": limit})
    if answer.status == 404:
        return json_response({"commands": [], "total": 0, "unknown": _OLDER})
    if answer.status in (409, 410):
        return json_response({"commands": [], "total": 0, "unknown": _ENDED})
    found = _list(answer)
    commands = [_command(op) for op in found.commands]
    return json_response({"commands": commands, "total": found.total, "unknown": None})


@router.get(
    "/sandbox/{sandbox_id}/commands/{op_id}/output",
    response_model=CommandOutput,
    responses=errors(404, 502),
    summary="(Sandlot) The last output of a command",
)
async def command_output(
    sandbox: Seen,
    op_id: OpId,
    have: Have,
    stream: Annotated[Literal["stdout", "stderr"], Query()] = "stdout",
    tail: Annotated[int, Query(ge=0, le=1 << 20, description="Bytes from the end.")] = 1 << 16,
) -> Response:
    """Return the last bytes of its kept output; bytes that are not UTF-8 become U+FFFD."""
    instance = _instance(sandbox, have)
    if instance is None:
        raise ApiError(404, f"no output: {_ENDED}")
    query: dict[str, str | int] = {"of": sandbox.id, "op": op_id, "stream": stream, "tail": tail}
    answer = await _look(have, instance, "/v1/commands/output", query)
    if answer.status in (404, 409, 410):
        raise ApiError(404, "no output: the command never ran here, or ended more than 10 minutes ago")
    _check(answer)
    return json_response({"output": answer.body.decode("utf-8", "replace")})


def _instance(sandbox: Sandbox, have: Services) -> Instance | None:
    return have.lifecycle.instance_of(sandbox) if sandbox.status is Status.RUNNING else None


async def _look(have: Services, instance: Instance, path: str, query: dict[str, str | int]) -> Answer:
    try:
        return await have.sidecars.look(instance, path, query)
    except SidecarError as error:
        raise ApiError(502, f"the sandbox did not answer: {error}; try again") from error


def _check(answer: Answer) -> None:
    if answer.status != 200:
        why = TOKEN_REJECTED if answer.status == 401 else f"the sandbox answered with status {answer.status}"
        raise ApiError(502, why)


def _list(answer: Answer) -> _List:
    _check(answer)
    try:
        return msgspec.json.decode(answer.body, type=_List)
    except NOT_JSON as error:
        raise ApiError(502, f"the sandbox sent no valid list of commands: {error}") from error


def _command(op: _Op) -> dict[str, Any]:
    used = op.usage
    return {
        **{name: getattr(op, name) for name in _Op.__struct_fields__ if name != "usage"},
        "started_at": iso(op.started_at),
        "ended_at": iso(op.ended_at),
        "wall": used.wall,
        "cpu": used.cpu,
        "peak_memory": used.peak_memory,
    }
