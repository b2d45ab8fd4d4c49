"""All ops of one claim: queued, running, watched, kept and expired."""

from __future__ import annotations

from collections import OrderedDict, deque

from .errors import ApiError, busy
from .idmemory import IdMemory
from .op import ANY, Op, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .limits import OpLimits

OVERHEAD = 2048  # bytes that an ended op counts besides its output


class OpTable:
    """Table of ops. The caller acts on what methods return; time is always an argument."""

    def __init__(self, *, limits: OpLimits, remembered: int = 1_000_000) -> None:
        self.limits = limits
        self.ops: dict[str, Op] = {}
        self.running = 0
        self.queue: OrderedDict[str, Op] = OrderedDict()
        self.held = 0  # bytes of ended ops
        self.read = 0  # bytes of those that are being read: they are kept, and leave the others their room
        self._ended: deque[Op] = deque()
        self._remembered = remembered
        self._expired = IdMemory(capacity=remembered)

    # Ops, from the queue to their end.

    def find(self, op_id: str, *, fingerprint: bytes | None = None) -> Op | None:
        """Return the op with this id. Raises 409 `op_conflict` (other spec) and 410 `expired` (its result is gone)."""
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
        """Append an op to the queue. Raises 503 `busy` unless forced."""
        if len(self.queue) >= self.limits.max_queued and not force:
            raise busy(
                f"{self.running} ops are running and {len(self.queue)} are queued: try again after Retry-After"
            )
        self.ops[op.op_id] = op
        self.queue[op.op_id] = op

    def next(self, *, now: float) -> Op | None:
        """Take the next op off the queue if it may run now; the caller hands it to a runner."""
        if not self.queue or self.running >= self.limits.max_running:
            return None
        _, op = self.queue.popitem(last=False)
        op.launch(now=now)
        self.running += 1
        return op

    def settle(self, op: Op) -> None:
        """Record that the op has ended and keep its result."""
        if op.started is None:
            self.queue.pop(op.op_id, None)
        else:
            self.running -= 1
        op.weight = OVERHEAD + (op.log.size if op.log is not None else 0)
        self.held += op.weight
        if op.attached:
            self.read += op.weight
        self._ended.append(op)

    def remember(self, op_id: str) -> None:
        """Remember an op id from before a restart, whose result is gone."""
        self._expired.add(op_id)

    # Watchers.

    def attach(self, op: Op) -> None:
        """Add a watcher."""
        op.attached += 1
        if op.state is State.ENDED and op.attached == 1:
            self.read += op.weight
        op.unattended_since = None

    def leave(self, op: Op, *, now: float) -> float | None:
        """Remove a watcher and return what is due.

        None: nothing; 0.0: kill the op now (`client_gone`); otherwise check again after that many seconds.
        """
        op.attached -= 1
        if op.state is State.ENDED and op.attached == 0 and op.op_id in self.ops:
            self.read -= op.weight
        if op.attached > 0 or op.detached or op.state is State.ENDED:
            return None
        op.unattended_since = now
        return self.limits.reattach_grace if op.chosen else 0.0

    def unattended(self, op: Op, *, now: float) -> bool:
        """Return whether the grace period for reattaching is over."""
        since = op.unattended_since
        if since is None or op.attached or op.detached or op.state is State.ENDED:
            return False
        return now - since >= self.limits.reattach_grace - 0.001  # timers may fire a little early

    # Results.

    def expire(self, *, now: float) -> tuple[list[Op], float | None]:
        """Drop results that are too old or too many; return them and the seconds until the next check."""
        dropped: list[Op] = []
        kept: list[Op] = []
        ttl, room = self.limits.result_ttl, self.limits.result_bytes
        due: float | None = None
        while self._ended:
            op = self._ended[0]
            age = now - (op.finished or 0.0)
            if op.attached:  # still being read
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
        """Drop an ended op of the sidecar's own."""
        if self.ops.pop(op.op_id, None) is not None:
            self._ended.remove(op)
            self.held -= op.weight
            self.read -= op.weight if op.attached else 0

    def forget(self) -> list[Op]:
        """Clear everything after a reset and return the ops that were known."""
        known = list(self.ops.values())
        self.ops.clear()
        self.queue.clear()
        self._ended.clear()
        self.running = self.held = self.read = 0
        self._expired = IdMemory(capacity=self._remembered)
        return known
