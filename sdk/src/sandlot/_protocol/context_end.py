"""Why a Python context has ended, and what each later call raises."""

from __future__ import annotations

from sandlot.cells import CellStatus
from sandlot.errors import PythonContextEnded, SandboxLost
from sandlot.models import Exit, Verdict

CLOSED = "it was closed"
_OURS = frozenset((Verdict.KILLED, Verdict.CLIENT_GONE))


class ContextEnd:
    """The end of a context: `reason` is None while it lives."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.verdict: Verdict | None = None
        self.gave_up = False  # this client killed it, since it did not answer
        self._lost: SandboxLost | None = None

    @property
    def lost(self) -> bool:
        """True if the infrastructure ended it."""
        return self._lost is not None

    def note(self, reason: str, verdict: Verdict | None = None) -> None:
        self.reason, self.verdict = reason, verdict

    def note_lost(self, error: SandboxLost) -> None:
        """Note an end by the infrastructure, which stays the cause that every later call raises."""
        self.reason, self._lost = str(error), error

    def note_exit(self, event: Exit) -> CellStatus | None:
        """Note the end of the context's program; return the status of its cell, if that has one."""
        if self.gave_up:
            self.note("its program did not answer and was killed", event.verdict)
            return CellStatus.TIMEOUT
        if event.verdict in _OURS:
            self.note(CLOSED, event.verdict)
            return None
        # Code can cause this, so it is no fault of the infrastructure.
        cause = event.message or f"exit code {event.exit_code}"
        self.note(f"its program ended: {event.verdict}, {cause}", event.verdict)
        return CellStatus.DIED

    def error(self) -> PythonContextEnded | SandboxLost:
        """Return what a call on the ended context raises."""
        if self._lost is not None:
            lost = self._lost
            return SandboxLost(str(lost), verdict=lost.verdict, sandbox_id=lost.sandbox_id)
        return PythonContextEnded(
            f"the Python context has ended: {self.reason}; `restart` starts a new one", verdict=self.verdict
        )
