"""The life of ops without any I/O: who may run, who is attached, what is killed, what is kept, what has expired."""

from __future__ import annotations

from collections import OrderedDict, deque

from .errors import ApiError, busy
from .idmemory import IdMemory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..config import OpLimits

QUEUED, RUNNING, ENDED = "queued", "running", "ended"
ANY = b"any"  # the fingerprint of an op whose spec is not known any more
OVERHEAD = 2048  # bytes an ended op is counted with besides its output

SIGKILL = 9


class Op:
    """One command: what was asked for, where it is, how it ended. Times are monotonic seconds unless `_at`."""

    __slots__ = (
        "attached",
        "cause",
        "cause_message",
        "chosen",
        "cpu",
        "created",
        "detached",
        "ended_at",
        "exit_code",
        "fingerprint",
        "finished",
        "io",
        "log",
        "message",
        "op_id",
        "peak_memory",
        "pid",
        "queued_before",
        "sent_signal",
        "signal",
        "spec",
        "started",
        "started_at",
        "state",
        "unattended_since",
        "verdict",
        "weight",
    )  # fmt: skip

    def __init__(self, *, op_id: str, chosen: bool, fingerprint: bytes, spec: Any, now: float) -> None:
        self.op_id = op_id
        self.chosen = chosen  # the id is the client's: it can come back after a lost connection
        self.fingerprint = fingerprint
        self.spec = spec
        self.detached = False
        self.state = QUEUED
        self.created = now
        self.started: float | None = None
        self.finished: float | None = None
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.queued_before = 0.0  # seconds it waited before it came here
        self.attached = 0
        self.unattended_since: float | None = None
        self.cause: str | None = None  # why we are ending it
        self.cause_message: str | None = None
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


class OpTable:
    """All ops of one claim. Methods say what the caller has to do; time is always an argument."""

    def __init__(self, *, limits: OpLimits, remembered: int = 1_000_000) -> None:
        self.limits = limits
        self.ops: dict[str, Op] = {}
        self.running = 0
        self.queue: OrderedDict[str, Op] = OrderedDict()
        self.held = 0  # bytes of ended ops
        self.read = 0  # of these, of ops that somebody reads now: they stay, and take no room from the others
        self._ended: deque[Op] = deque()
        self._remembered = remembered
        self._expired = IdMemory(capacity=remembered)

    # -- begin -----------------------------------------------------------------------------------------------

    def find(self, op_id: str, *, fingerprint: bytes | None = None) -> Op | None:
        """The op of this id. Raises 409 `op_conflict` (other spec) and 410 `expired` (its result is gone)."""
        op = self.ops.get(op_id)
        if op is None:
            if op_id in self._expired:
                raise ApiError(
                    410,
                    "expired",
                    "the op ran, but its result is no longer kept: run it under a new id",
                    op_id=op_id,
                )
            return None
        if fingerprint is not None and fingerprint != op.fingerprint and op.fingerprint != ANY:
            raise ApiError(
                409,
                "op_conflict",
                "this op id belongs to another command: choose a new one",
                field="id",
                op_id=op_id,
            )
        return op

    def add(self, op: Op, *, force: bool = False) -> None:
        """Put a new op at the end of the queue. Raises 503 `busy` (unless forced)."""
        if len(self.queue) >= self.limits.max_queued and not force:
            raise busy(f"{self.running} ops run and {len(self.queue)} wait; try again after Retry-After")
        self.ops[op.op_id] = op
        self.queue[op.op_id] = op

    def next(self, *, now: float) -> Op | None:
        """The op that may run now; it is running from here on."""
        if not self.queue or self.running >= self.limits.max_running:
            return None
        _, op = self.queue.popitem(last=False)
        op.state = RUNNING
        op.started = now
        self.running += 1
        return op

    def remember(self, op_id: str) -> None:
        """An id of an earlier life whose result is gone."""
        self._expired.add(op_id)

    # -- who is there ----------------------------------------------------------------------------------------

    def attach(self, op: Op) -> None:
        """Somebody watches."""
        op.attached += 1
        if op.state is ENDED and op.attached == 1:
            self.read += op.weight
        op.unattended_since = None

    def leave(self, op: Op, *, now: float) -> float | None:
        """A watcher has gone. None: nothing to do; 0.0: kill it now (`client_gone`); else look again in so many seconds."""
        op.attached -= 1
        if op.state is ENDED and op.attached == 0 and op.op_id in self.ops:
            self.read -= op.weight
        if op.attached > 0 or op.detached or op.state is ENDED:
            return None
        op.unattended_since = now
        return self.limits.reattach_grace if op.chosen else 0.0

    def unattended(self, op: Op, *, now: float) -> bool:
        """Whether the grace for coming back is over."""
        since = op.unattended_since
        if since is None or op.attached or op.detached or op.state is ENDED:
            return False
        return now - since >= self.limits.reattach_grace - 0.001  # a timer may fire a little early

    # -- end -------------------------------------------------------------------------------------------------

    def kill(self, op: Op, cause: str, *, now: float, message: str | None = None) -> bool:
        """End an op for a reason. True: its processes are to be killed; a queued op has ended when this returns."""
        if op.state is ENDED:
            return False
        if op.cause is None:
            op.cause = cause
            op.cause_message = message
        if op.state is QUEUED:
            self.finish(op, facts={}, now=now)
            return False
        return True

    def finish(self, op: Op, *, facts: dict[str, Any], now: float) -> None:
        """The op has ended; `facts` is what the runner saw, empty when it never ran or was lost."""
        if op.state is ENDED:
            return
        if op.state is QUEUED:
            self.queue.pop(op.op_id, None)
        else:
            self.running -= 1
        op.state = ENDED
        op.finished = now
        op.verdict, op.message = judge(
            cause=op.cause, cause_message=op.cause_message, sent_signal=op.sent_signal, facts=facts
        )
        op.signal = facts.get("signal")
        op.exit_code = exit_code(facts)
        op.cpu = float(facts.get("cpu") or 0.0)
        op.peak_memory = int(facts.get("peak_memory") or 0)
        op.weight = OVERHEAD + (op.log.size if op.log is not None else 0)
        self.held += op.weight
        if op.attached:
            self.read += op.weight
        self._ended.append(op)

    def expire(self, *, now: float) -> tuple[list[Op], float | None]:
        """Drop results that are too old or too many; returns them and the seconds until the next one is due."""
        dropped: list[Op] = []
        kept: list[Op] = []
        ttl, room = self.limits.result_ttl, self.limits.result_bytes
        due: float | None = None
        while self._ended:
            op = self._ended[0]
            age = now - (op.finished or 0.0)
            if op.attached:  # somebody still reads it
                due = max(ttl - age, 1.0) if due is None else min(due, max(ttl - age, 1.0))
                kept.append(self._ended.popleft())
                continue
            if age < ttl and self.held - self.read <= room:
                due = ttl - age if due is None else min(due, ttl - age)
                break
            self._ended.popleft()
            self.held -= op.weight
            self.ops.pop(op.op_id, None)
            self._expired.add(op.op_id)
            dropped.append(op)
        self._ended.extendleft(reversed(kept))
        return dropped, due

    def drop(self, op: Op) -> None:
        """An ended op of our own that nobody is to see."""
        if self.ops.pop(op.op_id, None) is not None:
            self._ended.remove(op)
            self.held -= op.weight
            self.read -= op.weight if op.attached else 0

    def forget(self) -> list[Op]:
        """After a reset: nothing has ever run here. Returns the ops that were known."""
        known = list(self.ops.values())
        self.ops.clear()
        self.queue.clear()
        self._ended.clear()
        self.running = self.held = self.read = 0
        self._expired = IdMemory(capacity=self._remembered)
        return known


def exit_code(facts: dict[str, Any]) -> int | None:
    """As a shell says it: 128+N for signal N; None when the op never ran."""
    if facts.get("signal"):
        return 128 + facts["signal"]
    return facts.get("exit_code")


def judge(
    *, cause: str | None, cause_message: str | None, sent_signal: int | None, facts: dict[str, Any]
) -> tuple[str, str | None]:
    """The verdict and its message.

    What we did to an op counts only when the op really died of it: one that ended by itself while our kill was
    on its way has ended by itself.
    """
    died, code = facts.get("signal"), facts.get("exit_code")
    failed = bool(died) or code != 0
    if not facts:
        return cause or "sandbox_broken", cause_message
    if facts.get("failed"):
        return _judge_start(facts)
    if cause == "sandbox_broken" or (cause is not None and died == SIGKILL):
        return cause, cause_message
    if facts.get("oom") and failed:
        return "oom", "the memory limit was reached"
    if facts.get("node_oom") and failed:
        return "sandbox_broken", "the node is out of memory, by no doing of this sandbox"
    if died:
        if sent_signal == died:
            return "killed", f"signal {died} was asked for"
        return "signaled", f"died of signal {died}"
    if facts.get("disk_full") == "sandbox" and failed:
        return "disk_full", "the sandbox's disk was full"
    if facts.get("disk_full") == "node" and failed:
        return "sandbox_broken", "the disk of the node is full, by no doing of this sandbox"
    if facts.get("pids_hit"):
        return "pids_limit", "the process limit was reached"
    return "exited", None


def _judge_start(facts: dict[str, Any]) -> tuple[str, str | None]:
    """The verdict of a command that could not be started."""
    failed, field, message = facts["failed"], facts.get("field"), facts.get("message")
    if facts.get("pids_hit"):
        return "pids_limit", message
    if failed in ("pids_limit", "oom"):
        return failed, message
    if facts.get("exit_code") in (126, 127):
        return "exited", message
    return "start_failed", f"{field}: {message}" if field else message
