"""The code interpreter's requests: each as requests to the sidecar, where contexts are ops (code_contexts.py).

What the code does is a result, also the end of its context. A loss of the infrastructure is an EnvdFailure.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import nullcontext, suppress
from typing import Any

import msgspec
from sandlot_contract.verdicts import CommandVerdict

from sandlot_gateway.control.hang_ups import has_hung_up
from sandlot_gateway.data.answers import Receive
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.errors import ClientGone, PoolError, WireError
from sandlot_gateway.python_context.answers import Answer, NoAnswer
from sandlot_gateway.tasks import Tasks

from . import code_contexts as contexts
from . import code_messages as messages
from .cell_stream import CellStream, ProgramEnded
from .client_watch import cut_without_client
from .code_contexts import DEFAULT, Found
from .context_room import ContextRoom
from .failures import EnvdFailure, invalid
from .grouped_response import GroupedResponse
from .messages import read
from .op_ends import loss
from .sidecar_call import SidecarCall

_KILL_AFTER = 5.0  # seconds from the interrupt of a cell whose client has left
_RESTART = 30.0  # seconds until a program that does not answer is killed
_KILL_WITHIN = 5.0  # seconds, of a context whose create failed
_TRIES = 3  # to find a context whose program does not end just then


async def execute(call: SidecarCall, body: bytes, stream: GroupedResponse) -> None:
    """Run a cell and send what it shows as it comes. It is interrupted if its client leaves."""
    asked = read(body, messages.Execute)
    asked.check()
    tries = 0
    while True:
        tries += 1
        found = await contexts.find(call, asked.context_id or DEFAULT)
        if found.op is None:
            contexts.check_loss(call, found)
            await _start(call, found, stream.receive)
            if found.before is not None and found.before["verdict"] != CommandVerdict.KILLED:
                why = f"its program had ended: {found.before['verdict']}"
                text = f"the code did not run, since the state of the context is lost: {why}"
                _add(stream, messages.restarted(text))
                break
        try:
            await _run(call, found, asked, stream)
            break
        except contexts.Ended:  # which is told as if it had been so from the beginning
            if tries == _TRIES:
                raise
    await stream.finish()


async def _run(call: SidecarCall, found: Found, asked: messages.Execute, stream: GroupedResponse) -> None:
    """Run a cell in a context's program. Raises contexts.Ended if it did not begin."""
    cell = secrets.token_hex(16)
    connection = await _open(call, found)
    try:
        async with cut_without_client(call.pool, connection, stream.receive):
            source = CellStream(connection, wanted=cell, on_wait=lambda: _flush(stream))
            await contexts.send(
                call, found.op_id, type="run", id=cell, code=asked.code, env=asked.env_vars or {}
            )
            await _answers(call, found, source, stream)
    except ClientGone:
        with suppress(EnvdFailure, PoolError):
            await contexts.send(call, found.op_id, type="interrupt", id=cell, kill_after=_KILL_AFTER)
        raise


async def create(
    call: SidecarCall, body: bytes, receive: Receive, *, tasks: Tasks, room: ContextRoom | None = None
) -> dict[str, Any]:
    """Begin a context, if there is `room` for one; `tasks` end it for a request that is cancelled."""
    asked = read(body, messages.NewContext)
    messages.check_language(asked.language)
    found = contexts.new()
    try:
        cwd = await _start(call, found, receive, cwd=asked.cwd, room=room)
        if has_hung_up(receive):
            raise ClientGone
    except asyncio.CancelledError:  # the gateway stops, which must not wait for a slow sandbox
        tasks.spawn(_forget(call, found))
        raise
    except Exception:
        await _forget(call, found)
        raise
    return messages.context(found.name, cwd)


async def _forget(call: SidecarCall, found: Found) -> None:
    """Kill a context whose id nobody learns."""
    with suppress(EnvdFailure, PoolError, WireError, TimeoutError):
        async with asyncio.timeout(_KILL_WITHIN):
            await contexts.kill(call, found.op_id)


async def list_(call: SidecarCall) -> list[dict[str, Any]]:
    return [messages.context(name, cwd) for name, cwd in await contexts.running(call)]


async def remove(call: SidecarCall, name: str) -> None:
    found = await contexts.find(call, name)
    if found.op is not None:
        await contexts.kill(call, found.op_id)


async def restart(call: SidecarCall, name: str, receive: Receive) -> None:
    """Kill a context's processes, also a running cell, and begin anew."""
    found = await contexts.find(call, name)
    if found.op is None:
        await _start(call, found, receive)
        return
    connection = await _open(call, found)
    request = secrets.token_hex(16)
    try:
        async with asyncio.timeout(_RESTART), cut_without_client(call.pool, connection, receive):
            source = CellStream(connection, wanted=request)
            await contexts.send(call, found.op_id, type="restart", id=request)
            while (await source.next()).id != request:
                pass
    except (TimeoutError, NoAnswer, ProgramEnded, contexts.Ended) as error:
        await contexts.kill(call, found.op_id)
        if not found.is_default:
            why = "has ended" if isinstance(error, contexts.Ended) else "did not answer, and was killed"
            text = f"context {found.name!r} was not found: its program {why}"
            raise EnvdFailure("not_found", f"{text}: create another one") from error
        await _start(call, contexts.next_program(found), receive)


async def _start(
    call: SidecarCall,
    found: Found,
    receive: Receive,
    *,
    cwd: str | None = None,
    room: ContextRoom | None = None,
) -> str:
    """Start a context's program, and wait until it can run cells; return its directory. Raises EnvdFailure."""
    async with nullcontext() if room is None else room.taken(call):
        place = await contexts.start(call, found, cwd)
    connection = await call.open("GET", f"/v1/ops/{found.op_id}/stream?offset=0")
    async with cut_without_client(call.pool, connection, receive):
        source = CellStream(connection)
        try:
            while (await source.next()).type != "ready":
                pass
        except (NoAnswer, ProgramEnded) as error:
            why = str(error)
            if isinstance(error, ProgramEnded):
                _check(call, error)
                why = error.errors[-300:] or why
            text = f"its image needs Python 3.8 or later as python3, which did not run here: {why}"
            raise invalid("sandbox", text) from error
    return place


async def _open(call: SidecarCall, found: Found) -> Connection:
    """Open the stream of a context's program, to read what follows a request that is sent then."""
    # Not from the end that the op's document says: a frame that nobody has read yet grows beyond that.
    return await call.open("GET", f"/v1/ops/{found.op_id}/stream?resume=1")


async def _answers(call: SidecarCall, found: Found, source: CellStream, stream: GroupedResponse) -> None:
    """Send a cell's answers, up to the last one or the end of its context."""
    try:
        while True:
            answer = await source.next()
            for document in messages.of_answer(answer):
                _add(stream, document)
            if answer.type == "done":
                await _revived(call, found, answer)
                return
            if stream.is_full:
                await stream.flush()
    except NoAnswer as error:
        _add(stream, messages.restarted(f"the state of the context is lost: {error}"))
        with suppress(EnvdFailure):
            await contexts.send(call, found.op_id, type="restart", id=secrets.token_hex(16))
    except ProgramEnded as ended:
        _check(call, ended)
        stream.verdict = str(ended.op.get("verdict")).encode()
        then = "" if found.is_default else "; create another one"
        _add(stream, messages.restarted(f"the context has ended with its program: {ended}{then}"))
        if found.is_default and ended.op.get("verdict") != CommandVerdict.KILLED:
            with suppress(EnvdFailure):  # else the next cell is told again
                await contexts.start(call, contexts.next_program(found))


async def _revived(call: SidecarCall, found: Found, answer: Answer) -> None:
    """Give a context whose state was lost a new process: the client has been told."""
    if answer.state_lost or answer.status == "refused":
        with suppress(EnvdFailure):  # its program has ended, too, which the next cell is told
            await contexts.send(call, found.op_id, type="restart", id=secrets.token_hex(16), only_lost=True)


def _check(call: SidecarCall, ended: ProgramEnded) -> None:
    """Raise EnvdFailure if the infrastructure has ended the program."""
    lost = loss(ended.op, sandbox_id=call.route.sandbox_id)
    if lost is not None:
        raise lost


def _add(stream: GroupedResponse, document: dict[str, Any]) -> None:
    stream.add_piece(msgspec.json.encode(document) + b"\n")


async def _flush(stream: GroupedResponse) -> None:
    if stream.has_pieces:
        await stream.flush()
