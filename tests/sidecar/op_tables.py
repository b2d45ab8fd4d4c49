"""Ops, and tables of ops, in the states that tests begin with."""

from __future__ import annotations

from typing import Any

from sandlot_sidecar.core.limits import OpLimits
from sandlot_sidecar.core.op import Action, Op, State
from sandlot_sidecar.core.table import OVERHEAD, OpTable
from sandlot_sidecar.core.verdicts import SIGKILL

DIED = {"signal": SIGKILL, "exit_code": None}
WITH_RUNNER = (State.STARTING, State.RUNNING, State.ENDING)
LIMITS = OpLimits(
    max_running=2, max_queued=3, reattach_grace=10.0, result_ttl=100.0, result_bytes=3 * OVERHEAD
)


class Log:
    """Output of a size."""

    def __init__(self, size: int) -> None:
        self.size = size


def new_op(op_id: str, *, chosen: bool = True, fingerprint: bytes = b"a", now: float = 1.0) -> Op:
    return Op(op_id=op_id, chosen=chosen, fingerprint=fingerprint, spec="spec", now=now)


def table_of(*names: str, running: int = 0, now: float = 1.0) -> OpTable:
    """A table with these ops, of which the first few run."""
    table = OpTable(limits=LIMITS)
    for name in names:
        table.add(new_op(name))
    for _ in range(running):
        table.next(now=now)
    return table


def finish(table: OpTable, op: Op, facts: dict[str, Any], *, now: float) -> None:
    """Its process ends, and no disk was full."""
    do = op.exited(facts, now=now)
    if do is Action.ASK:
        do = op.disk_is_full(None, now=now)
    assert do is Action.END
    table.settle(op)


def ended(*ends: tuple[str, float], size: int = 0) -> OpTable:
    """A table of ops that ended at these times, in this order."""
    table = OpTable(limits=LIMITS)
    for name, at in ends:
        op = new_op(name)
        op.log = Log(size)
        table.add(op)
        table.next(now=0.0)
        finish(table, op, {"exit_code": 0}, now=at)
    return table
