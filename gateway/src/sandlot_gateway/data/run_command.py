"""Notes the commands of sandboxes that have a run, as their requests end; most are only counted."""

from __future__ import annotations

import time

from sandlot_contract.headers import OP_KEY

from ..core.run_tally import MOST_BODY, RunTally, SlowCommand, command_in, command_text
from ..core.runs import RunId
from .answers import Message, Receive
from .routes import Route
from .wire import Headers


class RunCommand:
    """A command that has its turn. `asked`: its request's JSON, or what was read from another form of it."""

    __slots__ = ("asked", "began", "op", "run", "sandbox_id", "tenant")

    def __init__(self, route: Route, run: RunId, asked: bytes | str | list[str] | None) -> None:
        self.tenant = route.tenant
        self.run = run
        self.sandbox_id = route.sandbox_id
        self.asked = asked
        self.op = ""
        self.began = time.perf_counter()

    def collecting(self, receive: Receive) -> Receive:
        """Return a `receive` for the rest of a request's body, which notes the command that is in the whole."""
        found = bytearray(self.asked if isinstance(self.asked, bytes) else b"")
        self.asked = None
        collects = True

        async def received() -> Message:
            nonlocal collects
            message = await receive()
            if collects:
                found.extend(message.get("body", b""))
                complete = not message.get("more_body", False)
                if complete:  # only its text is kept while the command runs
                    self.asked = command_in(found)
                if complete or len(found) > MOST_BODY:
                    collects = False
                    found.clear()
            return message

        return received

    def end(self, tally: RunTally, *, queued: float, op: bytes, headers: Headers, verdict: bytes) -> None:
        """Count it in its run. `op`, `headers`, `verdict`: of its request, its answer, and its end, if they say so."""
        seconds = time.perf_counter() - self.began
        key = self.tenant, self.run
        if not tally.note(key, seconds=seconds, queued=queued):
            return
        named = self.op.encode() or next((value for name, value in headers if name == OP_KEY), op)
        asked = self.asked
        tally.keep(
            key,
            SlowCommand(
                self.sandbox_id,
                named[:128].decode("latin-1"),
                command_in(asked) if isinstance(asked, bytes) else command_text(asked),
                round(seconds, 6),
                time.time(),
                verdict[:64].decode("latin-1") or None,
            ),
        )
