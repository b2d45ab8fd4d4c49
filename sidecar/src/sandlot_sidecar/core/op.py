"""The life of one op: every move from one state to the next is decided here, and nowhere else.

Plain data: no I/O, no clock, no tasks. Whoever tells an op of an event does what the method returns.
"""

from __future__ import annotations

import enum

from sandlot_contract.verdicts import CommandVerdict

from .errors import ApiError
from .verdicts import INIT_LOST, LIMITS_REACHED, RUNNER_LOST, SIGKILL, Ask, exit_code, judge, question

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ANY = b"any"  # the fingerprint of an op whose spec is not known any more


class State(enum.Enum):
    """Where an op is."""

    QUEUED = enum.auto()  # waits for its turn
    STARTING = enum.auto()  # a runner has it, and nobody was told that it has started
    RUNNING = enum.auto()
    ENDING = enum.auto()  # ended by us for `cause`, and its processes may still live
    EXPLAINING = enum.auto()  # its processes are dead, and the executor is asked what of
    ENDED = enum.auto()


class Do(enum.Enum):
    """What an event leaves to be done."""

    NOTHING = enum.auto()
    TELL_START = enum.auto()  # to those who watch
    KILL = enum.auto()  # all its processes
    ASK = enum.auto()  # the executor, what `asked` says
    END = enum.auto()  # it has a verdict: tell everybody
    IMPOSSIBLE = enum.auto()  # the event cannot happen in this state: nothing has changed


class Stdin(enum.Enum):
    """Its way in."""

    NONE = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()  # end of file was sent


class Op:
    """One command: what was asked for, where it is, how it ended. Times are monotonic seconds unless `_at`."""

    __slots__ = (
        "asked", "attached", "cause", "cause_message", "chosen", "cpu", "created", "detached", "ended_at", "exit_code",
        "facts", "fingerprint", "finished", "impossible", "io", "log", "message", "op_id", "peak_memory", "pid", "queued_before",
        "sent_signal", "signal", "spec", "started", "started_at", "state", "stdin", "unattended_since", "verdict",
        "weight",
    )  # fmt: skip

    def __init__(self, *, op_id: str, chosen: bool, fingerprint: bytes, spec: Any, now: float) -> None:
        self.op_id = op_id
        self.chosen = chosen  # the id is the client's: it can come back after a lost connection
        self.fingerprint = fingerprint
        self.spec = spec
        self.detached = False
        self.state = State.QUEUED
        self.stdin = Stdin.NONE
        self.created = now
        self.started: float | None = None
        self.finished: float | None = None
        self.started_at: float | None = None  # None: nobody was told of its start
        self.ended_at: float | None = None
        self.queued_before = 0.0  # seconds it waited before it came here
        self.attached = 0
        self.unattended_since: float | None = None
        self.cause: str | None = None  # why we are ending it
        self.cause_message: str | None = None
        self.impossible: str | None = None  # the last event that met a state in which it cannot happen
        self.asked: Ask | None = None
        self.facts: dict[str, Any] | None = None  # what the runner saw, while more is asked for
        self.sent_signal: int | None = None  # the last signal the caller sent
        self.pid: int | None = None
        self.verdict: str | None = None
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.message: str | None = None
        self.cpu = 0.0
        self.peak_memory = 0
        self.weight = 0
        self.log: Any = None
        self.io: Any = None

    # Its start.

    def launch(self, *, now: float) -> Do:
        """A runner has it."""
        if self.state is not State.QUEUED:
            return self._cannot("launch")
        self.state, self.started = State.STARTING, now
        return Do.NOTHING

    def has_started(self, pid: int | None, *, at: float) -> Do:
        """Its runner says so, or it has shown something before its runner did (no pid)."""
        if self.state is State.STARTING:
            self.state = State.RUNNING
        elif self.state not in (State.RUNNING, State.ENDING):
            return self._cannot("has_started")
        if pid is not None:
            self.pid = pid
        if self.started_at is not None:
            return Do.NOTHING
        self.started_at = at
        return Do.TELL_START

    # Who ends it.

    def kill(self, cause: str, *, message: str | None, now: float) -> Do:
        """Its time is over, its owner does not want it, or its client has gone. The first cause stays."""
        if self.state in (State.EXPLAINING, State.ENDED):
            return Do.NOTHING  # it was faster
        self._ended_by(cause, message)
        if self.state is State.QUEUED:
            return self._end({}, now=now)
        self.state = State.ENDING
        return Do.KILL

    def at_limit(self, limit: str) -> Do:
        """Its runner is about to kill it. It may not come to say more: it can take the init's end to end a bomb."""
        if self.state not in (State.STARTING, State.RUNNING, State.ENDING):
            return self._cannot("at_limit")
        self._ended_by(limit, LIMITS_REACHED[limit])
        self.state = State.ENDING
        return Do.NOTHING

    def abandon(self, cause: str, *, message: str, now: float) -> Do:
        """The sandbox ends or is reset: it is not waited for."""
        if self.state is State.ENDED:
            return Do.NOTHING
        self._ended_by(cause, message)
        return self._end({}, now=now)

    def init_lost(self, message: str, *, mortal: bool, now: float) -> Do:
        """The sandbox's init has taken its processes along. `mortal`: code can kill it, and then has done so."""
        if self.state in (State.QUEUED, State.ENDED):
            return Do.NOTHING  # a new init comes
        if mortal:
            return self._end({"signal": SIGKILL}, now=now)
        self._ended_by(CommandVerdict.SANDBOX_BROKEN, message)
        return self._end({}, now=now)

    # What its runner sees.

    def exited(self, facts: dict[str, Any], *, now: float) -> Do:
        """Its process has ended, or could not be started, and none of its processes is left."""
        if self.state is State.ENDING:
            return self._end(facts, now=now)
        if self.state not in (State.STARTING, State.RUNNING):
            return self._cannot("exited")
        ask = question(facts)
        return self._end(facts, now=now) if ask is None else self._explain(ask, facts)

    def runner_lost(self, *, now: float) -> Do:
        """Its runner is gone, as code can make it: the kernel may kill it in place of the op that fills the memory."""
        if self.state is State.ENDING:
            return self._end({}, now=now)
        if self.state not in (State.STARTING, State.RUNNING):
            return self._cannot("runner_lost")
        return self._explain(Ask.COUNTERS, {})

    # What the executor answers.

    def disk_is_full(self, whose: str | None, *, now: float) -> Do:
        """Of the `sandbox`, of its `node`, or none."""
        if not self._was_asked(Ask.DISK):
            return self._late("disk_is_full")
        return self._end({**(self.facts or {}), "disk_full": whose}, now=now)

    def counted(self, facts: dict[str, Any], *, now: float) -> Do:
        """Facts by its group's counters; none: they do not tell."""
        if not self._was_asked(Ask.COUNTERS):
            return self._late("counted")
        return self._end(facts, now=now) if facts else self._explain(Ask.ALIVE, {})

    def init_lives(self, lives: bool, *, mortal: bool, now: float) -> Do:
        """Whether the init has taken it along; `mortal` as above."""
        if not self._was_asked(Ask.ALIVE):
            return self._late("init_lives")
        if lives and self.facts:
            return self._end(self.facts, now=now)
        if mortal and not lives:
            return self._end({"signal": SIGKILL}, now=now)
        self._ended_by(CommandVerdict.SANDBOX_BROKEN, RUNNER_LOST if lives else INIT_LOST)
        return self._end({}, now=now)

    # Its way in.

    def check_stdin(self, *, offset: int) -> None:
        """Whether it takes input. Raises a 409."""
        if self.state is State.ENDED:
            raise ApiError(409, "op_ended", "the op has ended", verdict=self.verdict, offset=offset)
        if self.stdin is Stdin.CLOSED:
            raise ApiError(409, "stdin_closed", "end of file was sent", offset=offset)

    def close_stdin(self) -> bool:
        """End of file is to be sent; False where it was, or comes too late."""
        if self.state is State.ENDED or self.stdin is not Stdin.OPEN:
            return False
        self.stdin = Stdin.CLOSED
        return True

    # Inside.

    def _ended_by(self, cause: str, message: str | None) -> None:
        if self.cause is None:
            self.cause, self.cause_message = cause, message

    def _explain(self, ask: Ask, facts: dict[str, Any]) -> Do:
        self.state, self.asked, self.facts = State.EXPLAINING, ask, facts
        return Do.ASK

    def _was_asked(self, ask: Ask) -> bool:
        return self.state is State.EXPLAINING and self.asked is ask

    def _late(self, event: str) -> Do:
        """An answer that is not waited for: right where the op was ended meanwhile."""
        return Do.NOTHING if self.state is State.ENDED else self._cannot(event)

    def _cannot(self, event: str) -> Do:
        self.impossible = event
        return Do.IMPOSSIBLE

    def _end(self, facts: dict[str, Any], *, now: float) -> Do:
        """`facts` is what is known of its end, none when it never ran or was lost."""
        self.state, self.finished = State.ENDED, now
        self.asked = self.facts = None
        self.verdict, self.message = judge(
            cause=self.cause, cause_message=self.cause_message, sent_signal=self.sent_signal, facts=facts
        )
        self.signal = facts.get("signal")
        self.exit_code = exit_code(facts)
        self.cpu = float(facts.get("cpu") or 0.0)
        self.peak_memory = int(facts.get("peak_memory") or 0)
        return Do.END
