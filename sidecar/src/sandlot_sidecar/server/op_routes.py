"""HTTP routes of ops: exec, create or attach, stream, output, stdin, signal, resize, delete."""

from __future__ import annotations

import asyncio

from sandlot_contract.frames import STDERR, STDOUT
from sandlot_contract.headers import ATTACHED, OP, OP_KEY, QUEUED_KEY, VERDICT
from sandlot_contract.verdicts import LOST, CommandVerdict

from ..core.errors import ApiError, bad_input
from ..core.op import Op, State
from . import documents, fields, spec, trace
from .http import Route
from .stream import send_frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..core.table import OpTable
    from .http import Http
    from .instance import Instance
    from .request import Answer, Request
    from .trace import Trace

MAX_WAIT = 3600.0


class OpRoutes:
    """Handlers for the ops of one instance."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._ops = instance.ops
        self._watchers = instance.ops.watchers

    def add_to(self, http: Http) -> None:
        """Register the routes."""
        http.add("POST", "/v1/exec", Route(self.exec))
        http.add("POST", "/v1/ops", Route(self.create))
        http.add("GET", "/v1/ops", Route(self.list))
        http.add("GET", "/v1/ops/{id}", Route(self.get))
        http.add("DELETE", "/v1/ops/{id}", Route(self.delete))
        http.add("GET", "/v1/ops/{id}/stream", Route(self.stream))
        http.add("GET", "/v1/ops/{id}/output", Route(self.output))
        http.add("POST", "/v1/ops/{id}/stdin", Route(self.stdin, streams=True))
        http.add("POST", "/v1/ops/{id}/signal", Route(self.signal))
        http.add("POST", "/v1/ops/{id}/resize", Route(self.resize))
        http.add("POST", "/v1/ops/{id}/detach", Route(self.detach))

    # -- exec ------------------------------------------------------------------------------------------------

    def exec(self, request: Request) -> None:
        """Run a command and send its buffered result (Prime's form); needs no task, as the op's end responds."""
        body = request.json()
        what = spec.from_exec(body)
        op_id = request.header(OP_KEY)
        if op_id is not None:
            op_id = spec.op_id(op_id, OP)
        traced = trace.of(request)
        op, _ = self._ops.create(what, op_id=op_id, queued_before=_queued(request), traced=traced)
        self._watchers.attach(op)
        request.on_gone = lambda: self._watchers.leave(op)
        named = op_id is not None
        self._watchers.when_ended(op, lambda op: self._answer_exec(request, op, named=named, traced=traced))

    def _answer_exec(self, request: Request, op: Op, *, named: bool, traced: Trace | None) -> None:
        if request.gone:
            return
        # The gateway counts by it, and reads no bodies.
        headers = ((OP, op.op_id), (VERDICT, str(op.verdict)))
        if traced is not None:
            headers += traced.timing(op)
        if not named and op.verdict in LOST:
            request.on_gone = None
            request.respond_error(self._lost(op, headers))
            self._watchers.leave(op)
        elif documents.is_small(op):
            request.on_gone = None
            request.respond(documents.exec_answer(op), status=documents.exec_status(op), headers=headers)
            self._watchers.leave(op)
        else:
            self._instance.tasks.spawn(self._long_exec(request, op, headers))

    def _lost(self, op: Op, headers: tuple[tuple[str, str], ...]) -> ApiError:
        """Return the error for an op lost to the infrastructure, for clients like Prime's that know no verdicts."""
        message = op.message or "the sandbox was lost"
        over = self._instance.record.verdict
        if over is not None:
            return ApiError(410, "ended", message, verdict=over, may_have_run=True, headers=headers)
        verdict = str(op.verdict)
        return ApiError(502, verdict, message, verdict=verdict, may_have_run=True, headers=headers)

    async def _long_exec(self, request: Request, op: Op, headers: tuple[tuple[str, str], ...]) -> None:
        request.on_gone = None
        try:
            answer = request.start(status=documents.exec_status(op), kind="application/json", headers=headers)
            await _write_all(answer, documents.exec_pieces(op))
            answer.finish()
        except ApiError:
            request.connection.abort()
        finally:
            self._watchers.leave(op)

    # -- create, get, attach ---------------------------------------------------------------------------------

    async def create(self, request: Request) -> None:
        """Create or attach to an op; sends frames, or the document with `?wait=`."""
        body, query = request.json(), request.query()
        what = spec.from_op(body)
        op_id = None if body.get("id") is None else spec.op_id(body["id"], "id")
        detach = fields.flag(body, "detach", default=False)
        wait = fields.query_seconds(query, "wait", maximum=MAX_WAIT)
        offset = fields.query_int(query, "offset", default=0) or 0
        queued, traced = _queued(request), trace.of(request)
        op, attached = self._ops.create(what, op_id=op_id, queued_before=queued, traced=traced)
        if detach:
            op.detached = True
        headers = ((OP, op.op_id), (ATTACHED, "1" if attached else "0"))
        if wait is not None:
            await self._wait(request, op, wait, headers=headers)
        else:
            await self._frames(request, op, offset, headers=headers)

    async def _wait(
        self, request: Request, op: Op, wait: float, *, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._watchers.attach(op)
        try:
            over = await self._watchers.wait_ended(op, timeout=wait)
        finally:
            self._watchers.leave_later(op)
        request.respond_json(documents.document(op), status=200 if over else 202, headers=headers)

    async def _frames(
        self, request: Request, op: Op, offset: int, *, headers: tuple[tuple[str, str], ...]
    ) -> None:
        if not op.log.is_boundary(offset):
            self._watchers.touch(op)
            raise ApiError(
                416,
                "bad_offset",
                "no frame begins at this offset: use the end of the last whole frame",
                field="offset",
                size=op.log.size,
            )
        self._watchers.attach(op)
        try:
            await send_frames(request, op, offset=offset, headers=headers)
        finally:
            self._watchers.leave(op)

    def _find(self, request: Request) -> Op:
        return find_op(self._ops.table, request.match, name="id")

    def list(self, request: Request) -> None:
        """Send the documents of all known ops."""
        spec = fields.query_flag(request.query(), "spec", default=False)
        ops = self._ops.table.ops.values()
        request.respond_json({"ops": [documents.document(op, with_spec=spec) for op in ops]})

    async def get(self, request: Request) -> None:
        """Send the op's document, at once or after its end."""
        op, query = self._find(request), request.query()
        wait = fields.query_seconds(query, "wait", maximum=MAX_WAIT)
        spec = fields.query_flag(query, "spec", default=False)
        self._watchers.attach(op)
        try:
            if wait:
                await self._watchers.wait_ended(op, timeout=wait)
        finally:
            self._watchers.leave_later(op)
        request.respond_json(documents.document(op, with_spec=spec), headers=((OP, op.op_id),))

    async def delete(self, request: Request) -> None:
        """Kill the op's whole tree; responds once it is dead."""
        op = self._find(request)
        self._watchers.attach(op)
        try:
            self._ops.kill(op, CommandVerdict.KILLED, message="the caller deleted the op")
            await self._watchers.wait_ended(op, timeout=None)
        finally:
            self._watchers.leave(op)
        request.respond_json(documents.document(op), headers=((OP, op.op_id),))

    async def stream(self, request: Request) -> None:
        """Send frames from an offset on, or from where the last watcher's connection broke."""
        op, query = self._find(request), request.query()
        if fields.query_flag(query, "resume", default=False):
            offset = op.log.unread()
        else:
            offset = fields.query_int(query, "offset", default=0) or 0
        await self._frames(request, op, offset, headers=((OP, op.op_id), (ATTACHED, "1")))

    async def output(self, request: Request) -> None:
        """Send kept bytes of one stream."""
        op, query = self._find(request), request.query()
        name = query.get("stream", "stdout")
        if name not in ("stdout", "stderr"):
            raise bad_input("stream must be stdout or stderr", field="stream")
        kind = STDOUT if name == "stdout" else STDERR
        offset = fields.query_int(query, "offset", default=0) or 0
        length = fields.query_int(query, "length")
        kept = op.log.kept_bytes(kind)
        length = max(0, kept - offset) if length is None else max(0, min(length, kept - offset))
        self._watchers.attach(op)
        try:
            answer = request.start(kind="application/octet-stream", length=length)
            if length:
                await _write_all(answer, op.log.output(kind, offset=offset, length=length))
            answer.finish()
        finally:
            self._watchers.leave_later(op)

    # -- input and signals -----------------------------------------------------------------------------------

    async def stdin(self, request: Request) -> None:
        """Write to the op's input and wait while the pipe is full; a repeat under the same id is dropped."""
        op, query = self._find(request), request.query()
        offset = fields.query_int(query, "offset")
        dedupe = query.get("id")
        if dedupe is not None and (offset is not None or not 0 < len(dedupe) <= 128):
            raise bad_input("id must have 1 to 128 characters and cannot be combined with offset", field="id")
        eof = fields.query_flag(query, "eof", default=False)
        if op.io.input is None:
            raise ApiError(409, "no_stdin", "this op has no input: start it with stdin or pty")
        await op.io.input.take(request.stream, offset=offset, dedupe=dedupe, eof=eof)
        request.respond_json({"offset": op.io.input.offset})

    def signal(self, request: Request) -> None:
        """Send a signal to the op, once per dedupe id; one that waits for its turn gets it when it starts."""
        op, body = self._find(request), request.json()
        number = fields.signal(body, "signal", required=True)
        tree = fields.flag(body, "tree", default=True)
        dedupe = fields.text(body, "id", limit=128)
        if op.state is State.ENDED:
            raise ApiError(409, "op_ended", "the op has ended: it takes no signals", verdict=op.verdict)
        op.io.signal(number, tree=tree, dedupe=dedupe)
        request.respond_json({})

    def resize(self, request: Request) -> None:
        """Change the terminal's size, also of an op that has not started."""
        op, body = self._find(request), request.json()
        for name in ("cols", "rows"):
            if body.get(name) is None:
                raise bad_input(f"{name} is required", field=name)
        size = spec.terminal_size(body)
        if op.spec is not None and op.spec.pty is None:
            raise ApiError(409, "not_a_pty", "this op has no terminal: start it with pty")
        if op.state is State.ENDED:
            raise ApiError(409, "op_ended", "the op has ended: its terminal is closed", verdict=op.verdict)
        op.io.output.resize(size)
        request.respond_json({})

    def detach(self, request: Request) -> None:
        """Keep the op running after its last watcher leaves."""
        op = self._find(request)
        op.detached = True
        request.respond_json({})


def find_op(table: OpTable, op_id: object, *, name: str) -> Op:
    """Return the op with this id, the field `name` of a request. Raises ApiError."""
    op = table.find(spec.op_id(op_id, name))
    if op is None:
        raise ApiError(
            404, "no_such_op", "no op has this id: it never ran here, or the sandbox was reset", op_id=op_id
        )
    return op


async def _write_all(answer: Answer, pieces: Iterator[bytes]) -> None:
    """Write the pieces in order.

    Without the sleep, a client that reads as fast as we write would block the other tasks.
    """
    for piece in pieces:
        if piece:
            await answer.write(piece)
        await asyncio.sleep(0)


def _queued(request: Request) -> float:
    """Return the seconds that the gateway queued the request; an invalid header counts as 0."""
    value = request.headers.get(QUEUED_KEY)
    if value is None:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        return 0.0
    return seconds if 0.0 <= seconds < 1e9 else 0.0
