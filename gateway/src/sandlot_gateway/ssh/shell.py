"""Serves one SSH channel: a shell, a command or a subsystem as one op of the sandbox."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Any

import asyncssh
import msgspec
from sandlot_contract.frames import END, STDERR, STDOUT
from sandlot_contract.headers import OP_KEY
from sandlot_contract.verdicts import CommandVerdict

from ..data.answers import TOKEN_REJECTED
from ..data.conn import Connection
from ..data.errors import PoolError, WireError
from ..data.frames import FrameReader, document
from ..data.outgoing import host_header, request_bytes
from ..data.pool import Answer, HttpPool
from ..data.routes import Route

log = logging.getLogger("sandlot.ssh")

_HELD = 256 * 1024  # bytes of input buffered for a command that does not read
_PIECE = 256 * 1024  # bytes of one stdin request
_ERROR_BODY = 64 * 1024
_FAILED = 255  # ssh's own exit status for a command that could not run
_LOGIN_SHELL = 'exec "$(command -v bash || echo sh)" -l'
_SFTP = """for each in /usr/lib/openssh /usr/lib/ssh /usr/libexec/openssh /usr/libexec; do
[ -x "$each/sftp-server" ] && exec "$each/sftp-server"
done
echo "this image has no sftp-server: use scp -O, rsync or a pipe" >&2
exit 127"""
_NAMES = ("ABRT", "ALRM", "FPE", "HUP", "ILL", "INT", "KILL", "PIPE", "QUIT", "SEGV", "TERM", "USR1", "USR2")


class Shell(asyncssh.SSHServerSession):
    """A session whose op ends with its channel: a client that leaves ends its command, like a hang-up."""

    def __init__(self, *, pool: HttpPool, route: Route) -> None:
        self._pool = pool
        self._route = route
        self._chan: asyncssh.SSHServerChannel[bytes]
        self._spec: dict[str, Any] = {"stdin": True}
        self._op = ""
        self._task: asyncio.Task[None] | None = None
        self._input = bytearray()
        self._input_ended = False
        self._news = asyncio.Event()  # set when the input changes
        self._writable = asyncio.Event()
        self._writable.set()
        self._side: set[asyncio.Task[Any]] = set()

    # Callbacks of asyncssh.

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._chan = chan

    def connection_lost(self, exc: Exception | None) -> None:
        for task in (self._task, *self._side):
            if task is not None:
                task.cancel()

    def pty_requested(self, term_type: str, term_size: tuple[int, int, int, int], term_modes: Any) -> bool:
        self._spec["pty"] = _size(term_size[0], term_size[1])
        self._spec["env"] = {"TERM": term_type or "dumb"}
        return True

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        self._aside("/resize", _size(width, height))

    def signal_received(self, signal: str) -> None:
        self._aside("/signal", {"signal": signal, "tree": False})

    def break_received(self, msec: int) -> bool:
        self._aside("/signal", {"signal": "INT", "tree": False})
        return True

    def shell_requested(self) -> bool:
        return self._begin(_LOGIN_SHELL)

    def exec_requested(self, command: str) -> bool:
        return self._begin(command)

    def subsystem_requested(self, subsystem: str) -> bool:
        return subsystem == "sftp" and self._begin(_SFTP)

    def session_started(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._input += data
        self._news.set()
        if len(self._input) >= _HELD:
            self._chan.pause_reading()

    def eof_received(self) -> bool:
        self._input_ended = True
        self._news.set()
        return True  # half-open: the command's output follows

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # The op.

    def _begin(self, command: str) -> bool:
        self._spec["command"] = command
        return True

    async def _run(self) -> None:
        try:
            await self._carry()
        except (PoolError, WireError, OSError) as error:
            self._fail(str(error))
        except asyncssh.Error as error:
            log.debug("an SSH channel ended: %s", error)

    async def _carry(self) -> None:
        connection = await self._pool.acquire(self._route.address, known_alive=True)
        feeding: asyncio.Task[None] | None = None
        try:
            connection.begin(self._request("POST", "/v1/ops", msgspec.json.encode(self._spec)))
            response = await connection.head()
            if response.status != 200:
                body = b""
                while len(body) < _ERROR_BODY and (piece := await connection.read()):
                    body += piece
                self._fail(_message(Answer(response.status, response.headers, body)))
                return
            self._op = dict(response.headers)[OP_KEY].decode()
            feeding = asyncio.get_running_loop().create_task(self._feed())
            await self._show(connection)
        finally:
            if feeding is not None:
                feeding.cancel()
                await asyncio.wait({feeding})
            # A connection with unread frames is closed, which tells the sidecar that the client is gone.
            self._pool.release(connection)

    async def _show(self, connection: Connection) -> None:
        reader = FrameReader()
        while data := await connection.read():
            for kind, payload in reader.feed(data):
                if kind == STDOUT:
                    self._chan.write(payload)
                elif kind == STDERR:
                    self._chan.write_stderr(payload)
                elif kind == END:
                    self._end(document(payload))
                    return
            await self._writable.wait()
        self._fail("the stream ended before the command's end")

    def _end(self, op: dict[str, Any]) -> None:
        verdict, number = op.get("verdict"), op.get("signal")
        if verdict not in (CommandVerdict.EXITED, CommandVerdict.SIGNALED, CommandVerdict.KILLED):
            self._say(f"{verdict}: {op.get('message') or 'the command was ended'}")
        name = _name(number)
        if name is not None:
            self._chan.exit_with_signal(name)
        else:
            code = op.get("exit_code")
            self._chan.exit(_FAILED if code is None else code)

    async def _feed(self) -> None:
        """Send input to the op until it ends or takes no more."""
        offset = 0
        while True:
            await self._news.wait()
            self._news.clear()
            while self._input:
                data = bytes(self._input[:_PIECE])
                answer = await self._fetch(f"/stdin?offset={offset}", data)
                if answer.status == 408:
                    continue  # the command does not read; the sidecar drops from the repeat what it has already
                if answer.status != 200:
                    return
                offset += len(data)
                del self._input[: len(data)]
                if len(self._input) < _HELD:
                    self._chan.resume_reading()
            if self._input_ended:
                await self._fetch(f"/stdin?offset={offset}&eof=1", b"")
                return

    def _aside(self, path: str, document: dict[str, Any]) -> None:
        if self._op:
            body = msgspec.json.encode(document)
            task = asyncio.get_running_loop().create_task(self._quietly(path, body))
            self._side.add(task)
            task.add_done_callback(self._side.discard)

    async def _quietly(self, path: str, body: bytes) -> None:
        try:
            await self._fetch(path, body)
        except PoolError as error:
            log.debug("%s of an SSH channel: %s", path, error)

    async def _fetch(self, path: str, body: bytes) -> Answer:
        return await self._pool.fetch(
            self._route.address,
            "POST",
            f"/v1/ops/{self._op}{path}",
            headers=[("authorization", f"Bearer {self._route.token}")],
            body=body,
            timeout=60.0,
        )

    def _request(self, method: str, target: str, body: bytes) -> bytes:
        headers = [("authorization", f"Bearer {self._route.token}")]
        return request_bytes(
            method, target, host=host_header(self._route.address), headers=headers, body=body
        )

    def _fail(self, text: str) -> None:
        self._say(text)
        self._chan.exit(_FAILED)

    def _say(self, text: str) -> None:
        # In raw mode a bare line feed would not return the cursor to the first column.
        self._chan.write_stderr(f"sandlot: {text}\r\n".encode())


def _size(width: int, height: int) -> dict[str, int]:
    """Return a valid terminal size; a client without a terminal sends 0."""
    return {"cols": min(width, 10_000) or 80, "rows": min(height, 10_000) or 24}


def _name(number: int | None) -> str | None:
    if not number:
        return None
    try:
        name = signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return None
    return name if name in _NAMES else None


def _message(answer: Answer) -> str:
    if answer.status == 401:
        return TOKEN_REJECTED
    try:
        document = answer.json()
    except PoolError:
        document = None
    text = document.get("message") or document.get("error") if isinstance(document, dict) else None
    return str(text or f"the sidecar answered {answer.status}")
