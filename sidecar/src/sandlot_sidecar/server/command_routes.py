"""Routes by which a gateway looks at the owner's commands: reading them is no use of the sandbox and keeps no op alive."""

from __future__ import annotations

import asyncio
from itertools import islice

from sandlot_contract.frames import STDERR, STDOUT

from ..core.errors import ApiError, bad_input
from . import documents, fields
from .http import INSTANCE, Route
from .op_routes import find_op

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..core.op import Op
    from .http import Http
    from .instance import Instance
    from .request import Request

MOST = 500
TAIL = 1 << 20
MESSAGE = 1000  # characters: a message may hold a whole argv[0], and the gateway reads the list at once
KINDS = {"stdout": STDOUT, "stderr": STDERR}


class CommandRoutes:
    """Handlers for the commands of one instance's owner."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def add_to(self, http: Http) -> None:
        """Register the routes."""
        http.add("GET", "/v1/commands", Route(self.list, needs=INSTANCE))
        http.add("GET", "/v1/commands/output", Route(self.output, needs=INSTANCE))

    def list(self, request: Request) -> None:
        """Send the last commands, newest first, and how many are known."""
        query = request.query()
        self._check_owner(query)
        last = fields.query_int(query, "last", default=100, minimum=1, maximum=MOST)
        start = self._instance.use.start_command
        ops = self._instance.ops.table.ops
        commands: list[dict[str, Any]] = [
            {
                **documents.document(op),
                "command": _utf_8(op.command or "" if op.spec is None else op.spec.line()),
                "start_command": start is not None and op is start.op,
                "message": None if op.message is None else _utf_8(op.message[:MESSAGE]),
            }
            for op in islice(reversed(ops.values()), last)
        ]
        request.respond_json({"commands": commands, "total": len(ops)})

    async def output(self, request: Request) -> None:
        """Send the last kept bytes of one stream of a command."""
        query = request.query()
        self._check_owner(query)
        stream = query.get("stream", "stdout")
        if stream not in KINDS:
            raise bad_input("stream must be stdout or stderr", field="stream")
        tail = fields.query_int(query, "tail", default=1 << 16, maximum=TAIL) or 0
        op = find_op(self._instance.ops.table, query.get("op"), name="op")
        start = self._instance.use.start_command
        if start is not None and op is start.op:
            data = start.log.text(stream, tail=tail)
        else:
            data = await self._tail(op, KINDS[stream], tail)
        request.respond(data, kind="application/octet-stream")

    async def _tail(self, op: Op, kind: int, tail: int) -> bytes:
        kept = op.log.kept_bytes(kind)
        pieces: list[bytes] = []
        for piece in op.log.output(kind, offset=max(0, kept - tail), length=min(tail, kept)):
            pieces.append(piece)
            await asyncio.sleep(0)
            # Without a watcher its result may be dropped meanwhile, or the sandbox reset for another owner.
            if self._instance.ops.table.ops.get(op.op_id) is not op:
                raise ApiError(410, "expired", "the output is no longer kept", op_id=op.op_id)
        return b"".join(pieces)

    def _check_owner(self, query: dict[str, str]) -> None:
        """Raise 409 unless the sandbox of the query owns the instance: after a reset another tenant of it may."""
        if self._instance.life.owned()["sandbox_id"] != query.get("of"):
            raise ApiError(409, "claimed", "this instance has another owner than the sandbox of the request")


def _utf_8(text: str) -> str:
    """Replace bytes that are not UTF-8: the gateway would take the list for no JSON."""
    return text.encode("utf-8", "replace").decode()
