"""State machine of one op; no other code changes its state.

Plain data: no I/O, no clock, no tasks. The driver reports events to an op and carries out the action returned.
"""

from __future__ import annotations

import enum

from sandlot_contract.verdicts import CommandVerdict

from .errors import ApiError
from .verdicts import INIT_LOST, LIMITS_REACHED, RUNNER_LOST, SIGKILL, Question, exit_code, judge, question

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ANY = b"any"  # the fingerprint of an op whose spec is no longer known


class State(enum.Enum):
    """State of an op."""

    QUEUED = enum.auto()  # waits for a runner
    STARTING = enum.auto()  # a runner has it; watchers have not been notified of its start
    RUNNING = enum.auto()
    ENDING = enum.auto()  # being ended by us for `cause`; its processes may still live
    EXPLAINING = enum.auto()  # its processes are dead; the executor has been asked for the reason
    SETTLING = (
        enum.auto()
    )  # ended, but a command sent now could meet its processes, or the init that died with them
    ENDED = enum.auto()


class Action(enum.Enum):
    """Action that an event asks of the driver."""

    NOTHING = enum.auto()
    TELL_START = enum.auto()  # notify watchers
    KILL = enum.auto()  # kill all its processes
    ASK = enum.auto()  # ask the executor the question in `asked`
    AWAIT = enum.auto()  # report the next init, or that the kill of what is left has spared the init
    END = enum.auto()  # it has a verdict: notify everyone
    IMPOSSIBLE = enum.auto()  # the event cannot happen in this state; nothing has changed


class Stdin(enum.Enum):
    """State of an op's standard input."""

    NONE = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()  # end of file was sent


class Op:
    """One command: its spec, its state and its result. Times are monotonic seconds unless named `_at`."""

    __slots__ = (
        "asked", "attached", "cause", "cause_message", "chosen", "command", "cpu", "created", "detached", "ended_at", "exit_code",
        "facts", "fingerprint", "finished", "impossible", "io", "log", "message", "op_id", "peak_memory", "pid", "queued_before",
        "sent_signal", "signal", "spec", "started", "started_at", "state", "stdin", "trace", "unattended_since",
        "verdict", "weight",
    )  # fmt: skip

    def __init__(self, *, op_id: str, chosen: bool, fingerprint: bytes, spec: Any, now: float) -> None:
        self.op_id = op_id
        self.chosen = chosen  # the client chose the id, so it can reattach after a lost connection
        self.fingerprint = fingerprint
        self.spec = spec
        self.command: str | None = None  # what lists show of an ended op's command
        self.detached = False
        self.state = State.QUEUED
        self.stdin = Stdin.NONE
        self.created = now
        self.started: float | None = None
        self.finished: float | None = None
        self.started_at: float | None = None  # None: watchers have not been notified of its start
        self.ended_at: float | None = None
        self.queued_before = 0.0  # seconds spent queued before it reached the sidecar
        self.attached = 0
        self.unattended_since: float | None = None
        self.cause: str | None = None  # why we are ending it
        self.cause_message: str | None = None
        self.impossible: str | None = None  # the last event that cannot happen in its state
        self.asked: Question | None = None
        self.facts: dict[str, Any] | None = None  # what the runner saw, while the executor is asked for more
        self.sent_signal: int | None = None  # the last signal the caller sent
        self.pid: int | None = None
        self.verdict: str | None = None
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.message: str | None = None
        self.cpu = 0.0
        self.peak_memory = 0
        self.weight = 0
        self.trace: Any = None  # of the request that created it, if that has one
        self.log: Any = None
        self.io: Any = None

    # Start.

    def launch(self, *, now: float) -> Action:
        """Record that a runner has the op."""
        if self.state is not State.QUEUED:
            return self._cannot("launch")
        self.state, self.started = State.STARTING, now
        return Action.NOTHING

    def has_started(self, pid: int | None, *, at: float) -> Action:
        """Record its start, reported by its runner or implied by output (then without a pid)."""
        if self.state is State.STARTING:
            self.state = State.RUNNING
        elif self.state not in (State.RUNNING, State.ENDING):
            return self._cannot("has_started")
        if pid is not None:
            self.pid = pid
        if self.started_at is not None:
            return Action.NOTHING
        self.started_at = at
        return Action.TELL_START

    # Ends by us.

    def kill(self, cause: str, *, message: str | None, now: float) -> Action:
        """End the op for its timeout, by its caller, or because its client has gone. The first cause wins."""
        if self.state in (State.EXPLAINING, State.SETTLING, State.ENDED):
            return Action.NOTHING  # it ended by itself first
        self._ended_by(cause, message)
        if self.state is State.QUEUED:
            return self._end({}, now=now)
        self.state = State.ENDING
        return Action.KILL

    def at_limit(self, limit: str) -> Action:
        """Record the limit that it reached; its runner is about to kill it, and may not live to report the end."""
        if self.state not in (State.STARTING, State.RUNNING, State.ENDING):
            return self._cannot("at_limit")
        self._ended_by(limit, LIMITS_REACHED[limit])
        self.state = State.ENDING
        return Action.NOTHING

    def abandon(self, cause: str, *, message: str, now: float) -> Action:
        """End the op without waiting for its processes: the sandbox ends or is reset."""
        if self.state is State.ENDED:
            return Action.NOTHING
        if self._has_ended():
            return self._end(self.facts or {}, now=now)
        self._ended_by(cause, message)
        return self._end({}, now=now)

    def init_lost(self, message: str, *, mortal: bool, now: float) -> Action:
        """End an op that the sandbox's init took down. `mortal`: user code can kill the init, so it did."""
        if self.state in (State.QUEUED, State.ENDED):
            return Action.NOTHING  # the op will run under the new init
        if self._has_ended():
            return self._end(self.facts or {}, now=now)
        if mortal:
            return self._end({"signal": SIGKILL}, now=now)
        self._ended_by(CommandVerdict.SANDBOX_BROKEN, message)
        return self._end({}, now=now)

    # Reports of its runner.

    def exited(self, facts: dict[str, Any], *, now: float) -> Action:
        """Record that the op's process ended or could not start, and that none of its processes is left.

        `init_killed` in `facts`: they could be killed only with the sandbox's init.
        """
        if self.state not in (State.STARTING, State.RUNNING, State.ENDING):
            return self._cannot("exited")
        if facts.get("init_killed"):
            return self._settle(facts)
        ask = None if self.state is State.ENDING else question(facts)
        return self._end(facts, now=now) if ask is None else self._explain(ask, facts)

    def being_killed(self, facts: dict[str, Any]) -> Action:
        """Record the op's end as `exited` does, while the executor kills what may be left of it."""
        return self._settle(facts) if self.state is State.ENDING else self._cannot("being_killed")

    def settled(self, *, now: float) -> Action:
        """Record that nothing is left of it and the init lives, or that nobody has said so in time."""
        if self.state is not State.SETTLING:
            return self._late("settled")
        if not self.facts:
            self._ended_by(CommandVerdict.SANDBOX_BROKEN, INIT_LOST)
        return self._end(self.facts or {}, now=now)

    def runner_lost(self, *, now: float) -> Action:
        """Record the loss of its runner, which the OOM killer may choose in place of the op that fills the memory.

        Where the op was being ended, the caller has what is left of it killed.
        """
        if self.state is State.ENDING:
            return self._settle({})
        if self.state not in (State.STARTING, State.RUNNING):
            return self._cannot("runner_lost")
        return self._explain(Question.COUNTERS, {})

    # Answers of the executor.

    def disk_is_full(self, whose: str | None, *, now: float) -> Action:
        """Record whose disk is full: `sandbox`, `node` or None."""
        if not self._was_asked(Question.DISK):
            return self._late("disk_is_full")
        return self._end({**(self.facts or {}), "disk_full": whose}, now=now)

    def counted(self, facts: dict[str, Any], *, now: float) -> Action:
        """Record the facts from the cgroup's counters; empty if they are inconclusive."""
        if not self._was_asked(Question.COUNTERS):
            return self._late("counted")
        if facts.get("init_killed"):
            return self._settle(facts)
        return self._end(facts, now=now) if facts else self._explain(Question.ALIVE, {})

    def init_lives(self, lives: bool, *, mortal: bool, now: float) -> Action:
        """Record whether the init is alive or took the op down, which then ends with `init_lost`; `mortal` as there."""
        if not self._was_asked(Question.ALIVE):
            return self._late("init_lives")
        if lives and self.facts:
            return self._end(self.facts, now=now)
        if not lives:
            if not mortal:
                self._ended_by(CommandVerdict.SANDBOX_BROKEN, INIT_LOST)
            return self._settle({"signal": SIGKILL} if mortal else {})
        self._ended_by(CommandVerdict.SANDBOX_BROKEN, RUNNER_LOST)
        return self._end({}, now=now)

    # Standard input.

    def check_stdin(self, *, offset: int) -> None:
        """Check that the op takes input. Raises a 409."""
        if self.state is State.ENDED:
            raise ApiError(
                409, "op_ended", "the op has ended: it takes no input", verdict=self.verdict, offset=offset
            )
        if self.stdin is Stdin.CLOSED:
            raise ApiError(
                409, "stdin_closed", "standard input is closed: end of file was sent", offset=offset
            )

    def close_stdin(self) -> bool:
        """Return whether end of file is to be sent now: False if it was, or if the op has ended."""
        if self.state is State.ENDED or self.stdin is not Stdin.OPEN:
            return False
        self.stdin = Stdin.CLOSED
        return True

    # Helpers.

    def _ended_by(self, cause: str, message: str | None) -> None:
        if self.cause is None:
            self.cause, self.cause_message = cause, message

    def _explain(self, ask: Question, facts: dict[str, Any]) -> Action:
        self.state, self.asked, self.facts = State.EXPLAINING, ask, facts
        return Action.ASK

    def _has_ended(self) -> bool:
        """Return whether it is known how its process ended."""
        return bool(self.facts) and (self.state is State.SETTLING or self.asked is Question.DISK)

    def _settle(self, facts: dict[str, Any]) -> Action:
        self.state, self.asked, self.facts = State.SETTLING, None, facts
        return Action.AWAIT

    def _was_asked(self, ask: Question) -> bool:
        return self.state is State.EXPLAINING and self.asked is ask

    def _late(self, event: str) -> Action:
        """Reject an answer that is not expected; harmless if the op has ended meanwhile."""
        return Action.NOTHING if self.state is State.ENDED else self._cannot(event)

    def _cannot(self, event: str) -> Action:
        self.impossible = event
        return Action.IMPOSSIBLE

    def _end(self, facts: dict[str, Any], *, now: float) -> Action:
        """End the op by `facts`, which are empty if it never ran or was lost."""
        self.state, self.finished = State.ENDED, now
        self.asked = self.facts = None
        self.verdict, self.message = judge(
            cause=self.cause, cause_message=self.cause_message, sent_signal=self.sent_signal, facts=facts
        )
        self.signal = facts.get("signal")
        self.exit_code = exit_code(facts)
        self.cpu = float(facts.get("cpu") or 0.0)
        self.peak_memory = int(facts.get("peak_memory") or 0)
        return Action.END
