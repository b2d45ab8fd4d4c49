# This file is auto-generated from sdk/src/sandlot/_async/cell_reader.py by tools/async_to_sync.py: do not change it.
"""Reads the answers of a Python context from the stream of its op, until a condition or the context's end."""

from __future__ import annotations

from collections.abc import Callable

from sandlot._protocol.cells import CellProtocolError, Cells, Listeners
from sandlot._protocol.context_end import CLOSED, ContextEnd
from sandlot._protocol.patience import Patience
from sandlot._sync.plane import Plane
from sandlot._sync.stream import OpStream
from sandlot._tasks_sync import now
from sandlot.cells import CellStatus
from sandlot.errors import NotFound, OpExpired, SandboxLost
from sandlot.models import Exit, Stderr, Stdout


class CellReader:
    """What a context has answered so far; a base class of `PythonContext`, whose calls read one at a time."""

    def __init__(self, *, plane: Plane, stream: OpStream) -> None:
        self.id = stream.op_id
        self._plane = plane
        self._stream = stream
        self._cells = Cells()
        self._end = ContextEnd()
        self._errors = ""
        self._listeners: dict[str, Listeners] = {}

    def _read_until(
        self, decided: Callable[[], bool], *, patience: float | None = None, cell: str | None = None
    ) -> None:
        """Read answers until `decided` or the end; kill a context that answers nothing for too long."""
        waits = Patience(patience, cell=cell, now=now())
        while not decided() and self._end.reason is None:
            self._read()
            running = self._cells.running
            if waits.is_over(None if running is None else running.id, now=now()) and not self._end.gave_up:
                self._give_up()

    def _give_up(self) -> None:
        """Kill a context whose program does not answer."""
        self._end.gave_up = True
        try:
            self._plane.end(self.id)
        except BaseException:
            self._end.gave_up = False
            raise

    def _read(self) -> None:
        try:
            event = self._stream.next_event()
        except StopIteration:
            self._note(CLOSED)
            return
        except (NotFound, OpExpired):
            self._note("its output is no longer kept")
            return
        except SandboxLost as error:
            self._end.note_lost(error)
            self._cut(None)
            raise
        except BaseException:
            # The stream cannot be read on after this, and the context goes on.
            self._stream = OpStream(
                plane=self._plane, op_id=self.id, document=None, offset=self._stream.offset, keep=True
            )
            raise
        if isinstance(event, Stdout):
            try:
                shown = self._cells.feed(event.data)
            except CellProtocolError as error:
                self._stream.stop()
                self._note(f"code wrote into its protocol ({error})", CellStatus.DIED)
                self._plane.end(self.id)
                return
            for output in shown:
                if output.cell in self._listeners:
                    self._listeners[output.cell].take(output)
        elif isinstance(event, Stderr):
            self._errors = (self._errors + event.text)[-4000:]
        elif isinstance(event, Exit):
            self._cut(self._end.note_exit(event))

    def _note(self, reason: str, status: CellStatus | None = None) -> None:
        self._end.note(reason)
        self._cut(status)

    def _cut(self, status: CellStatus | None) -> None:
        """End the running cell, which has a result with this status if its code caused the context's end."""
        message = f"the context ended: {self._end.reason}"
        self._cells.cut(status, message=message, verdict=self._end.verdict)
