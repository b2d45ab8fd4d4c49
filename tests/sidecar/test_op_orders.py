"""The life of an op without I/O: every order of a few events."""

from __future__ import annotations

import itertools

import pytest
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.core.limits import OpLimits
from sandlot_sidecar.core.op import Action, Op, State
from sandlot_sidecar.core.table import OVERHEAD, OpTable

from tests.sidecar.op_tables import DIED, WITH_RUNNER, new_op


def finish(table: OpTable, op: Op, *, now: float) -> None:
    assert op.exited({"exit_code": 0}, now=now) is Action.END
    table.settle(op)


class InstanceState:
    """One op id, two callers, a runner that dies a while after it is told to, and whatever order it comes in."""

    def __init__(self) -> None:
        self.table = OpTable(limits=OpLimits(reattach_grace=10.0, result_ttl=100.0))
        self.starts = 0
        self.told_to_kill = False
        self.ends: list[str | None] = []
        self.now = 0.0

    def create(self) -> None:
        try:
            op = self.table.find("id", fingerprint=b"a")
        except ApiError as error:
            assert error.code == "expired"
            return
        if op is None:
            op = new_op("id", now=self.now)
            self.table.add(op)
        self.table.attach(op)

    def start(self) -> None:
        if self.table.next(now=self.now) is not None:
            self.starts += 1

    def leave(self) -> None:
        op = self.table.ops.get("id")
        if op is not None and op.attached:
            self.table.leave(op, now=self.now)

    def grace_over(self) -> None:
        self.now += 10.0
        op = self.table.ops.get("id")
        if op is not None and self.table.unattended(op, now=self.now):
            self._kill(op, "client_gone")

    def timeout(self) -> None:
        op = self.table.ops.get("id")
        if op is not None:
            self._kill(op, "timeout")

    def _kill(self, op: Op, cause: str) -> None:
        self._do(op, op.kill(cause, message=None, now=self.now))

    def _do(self, op: Op, do: Action) -> None:
        assert do in (Action.NOTHING, Action.KILL, Action.END)
        if do is Action.KILL:
            self.told_to_kill = True
        elif do is Action.END:
            self.table.settle(op)
            self.ends.append(op.verdict)

    def exits(self) -> None:
        """Its process ends: killed, if the runner was told to, else by itself."""
        op = self.table.ops.get("id")
        if op is not None and op.state in WITH_RUNNER:
            self._do(op, op.exited(DIED if self.told_to_kill else {"exit_code": 0}, now=self.now))

    def expire(self) -> None:
        self.now += 100.0
        self.table.expire(now=self.now)

    def check(self) -> None:
        assert self.starts <= 1
        assert len(self.ends) <= 1
        running = [op for op in self.table.ops.values() if op.state in WITH_RUNNER]
        queued = [op.op_id for op in self.table.ops.values() if op.state is State.QUEUED]
        assert self.table.running == len(running)
        assert list(self.table.queue) == queued
        assert self.table.held == sum(op.weight for op in self.table.ops.values() if op.state is State.ENDED)


EVENTS = ("create", "create", "start", "leave", "grace_over", "timeout", "exits", "expire")


def test_every_order_of_events_runs_it_at_most_once_and_ends_it_at_most_once() -> None:
    verdicts = set()
    for order in set(itertools.permutations(EVENTS)):
        life = InstanceState()
        for event in order:
            getattr(life, event)()
            life.check()
        # Whatever came before, a last look at it never starts it again.
        if life.ends:
            life.create()
            life.start()
            life.check()
        verdicts.update(life.ends)
    assert verdicts == {"exited", "timeout", "client_gone"}


def test_the_same_id_with_another_spec_is_a_conflict_and_an_expired_one_never_runs_again() -> None:
    table = OpTable(limits=OpLimits(result_ttl=5.0))
    op = new_op("id", now=0.0)
    table.add(op)
    with pytest.raises(ApiError) as error:
        table.find("id", fingerprint=b"b")
    assert (error.value.status, error.value.code) == (409, "op_conflict")
    assert table.next(now=0) is op
    finish(table, op, now=1)
    assert table.expire(now=5.9) == ([], pytest.approx(0.1))
    assert table.expire(now=6) == ([op], None)
    for fingerprint in (None, b"a", b"b"):
        with pytest.raises(ApiError) as error:
            table.find("id", fingerprint=fingerprint)
        assert (error.value.status, error.value.code) == (410, "expired")


def test_a_slow_reader_keeps_its_own_result_and_nobody_else_s() -> None:
    table = OpTable(limits=OpLimits(result_ttl=5.0, result_bytes=3 * OVERHEAD))
    for name in ("read", "old", "young"):
        table.add(new_op(name, now=0.0))
        table.next(now=0)
    table.attach(table.ops["read"])
    for name, now in (("read", 0.0), ("old", 0.0), ("young", 4.0)):
        finish(table, table.ops[name], now=now)
    old, read = table.ops["old"], table.ops["read"]
    assert table.expire(now=6.0) == ([old], 1.0)
    read.weight, table.held, table.read = 1 << 30, table.held + (1 << 30), 1 << 30
    assert table.expire(now=6.0)[0] == []
    table.leave(read, now=6.0)
    assert table.expire(now=6.0)[0] == [read]
    assert set(table.ops) == {"young"}
