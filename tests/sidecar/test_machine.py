"""The life of ops without I/O: every order of events, and random long lives against a model."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sandlot_sidecar.config import OpLimits
from sandlot_sidecar.server.errors import ApiError
from sandlot_sidecar.server.idmemory import IdMemory
from sandlot_sidecar.server.machine import ENDED, OVERHEAD, QUEUED, RUNNING, SIGKILL, Op, OpTable, judge

DIED = {"signal": SIGKILL, "exit_code": None}


def new(op_id: str, *, chosen: bool = True, fingerprint: bytes = b"a", now: float = 0.0) -> Op:
    return Op(op_id=op_id, chosen=chosen, fingerprint=fingerprint, spec=None, now=now)


class Life:
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
            op = new("id", now=self.now)
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
        was = op.state
        if self.table.kill(op, cause, now=self.now):
            self.told_to_kill = True
        elif was is not ENDED:
            self.ends.append(op.verdict)

    def exits(self) -> None:
        """Its process ends: killed, if the runner was told to, else by itself."""
        op = self.table.ops.get("id")
        if op is not None and op.state is RUNNING:
            self.table.finish(op, facts=DIED if self.told_to_kill else {"exit_code": 0}, now=self.now)
            self.ends.append(op.verdict)

    def expire(self) -> None:
        self.now += 100.0
        self.table.expire(now=self.now)

    def check(self) -> None:
        assert self.starts <= 1
        assert len(self.ends) <= 1
        running = [op for op in self.table.ops.values() if op.state is RUNNING]
        queued = [op.op_id for op in self.table.ops.values() if op.state is QUEUED]
        assert self.table.running == len(running)
        assert list(self.table.queue) == queued
        assert self.table.held == sum(op.weight for op in self.table.ops.values() if op.state is ENDED)


EVENTS = ("create", "create", "start", "leave", "grace_over", "timeout", "exits", "expire")


def test_every_order_of_events_runs_it_at_most_once_and_ends_it_at_most_once() -> None:
    verdicts = set()
    for order in set(itertools.permutations(EVENTS)):
        life = Life()
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
    op = new("id")
    table.add(op)
    with pytest.raises(ApiError) as error:
        table.find("id", fingerprint=b"b")
    assert (error.value.status, error.value.code) == (409, "op_conflict")
    assert table.next(now=0) is op
    table.finish(op, facts={"exit_code": 0}, now=1)
    assert table.expire(now=5.9) == ([], pytest.approx(0.1))
    assert table.expire(now=6) == ([op], None)
    for fingerprint in (None, b"a", b"b"):
        with pytest.raises(ApiError) as error:
            table.find("id", fingerprint=fingerprint)
        assert (error.value.status, error.value.code) == (410, "expired")


def test_a_slow_reader_keeps_its_own_result_and_nobody_else_s() -> None:
    table = OpTable(limits=OpLimits(result_ttl=5.0, result_bytes=3 * OVERHEAD))
    for name in ("read", "old", "young"):
        table.add(new(name))
        table.next(now=0)
    table.attach(table.ops["read"])
    for name, now in (("read", 0.0), ("old", 0.0), ("young", 4.0)):
        table.finish(table.ops[name], facts={"exit_code": 0}, now=now)
    old, read = table.ops["old"], table.ops["read"]
    assert table.expire(now=6.0) == ([old], 1.0)
    read.weight, table.held, table.read = 1 << 30, table.held + (1 << 30), 1 << 30
    assert table.expire(now=6.0)[0] == []
    table.leave(read, now=6.0)
    assert table.expire(now=6.0)[0] == [read]
    assert set(table.ops) == {"young"}


@pytest.mark.parametrize("cause", [None, "timeout", "killed", "client_gone", "sandbox_broken"])
@pytest.mark.parametrize("sent", [None, 9, 15])
@pytest.mark.parametrize("died", [None, 9, 15, 11])
@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"oom": True},
        {"node_oom": True},
        {"disk_full": "sandbox"},
        {"disk_full": "node"},
        {"pids_hit": True},
    ],
)
def test_verdicts(
    cause: str | None, sent: int | None, died: int | None, code: int, facts: dict[str, Any]
) -> None:
    verdict, _ = judge(
        cause=cause,
        cause_message=None,
        sent_signal=sent,
        facts={"signal": died, "exit_code": None if died else code, **facts},
    )
    if cause == "sandbox_broken" or (cause is not None and died == SIGKILL):
        expected = cause
    elif facts.get("oom") and (died or code):
        expected = "oom"
    elif facts.get("node_oom") and (died or code):
        expected = "sandbox_broken"
    elif died:
        expected = "killed" if sent == died else "signaled"
    elif facts.get("disk_full") and code:
        expected = "disk_full" if facts["disk_full"] == "sandbox" else "sandbox_broken"
    elif facts.get("pids_hit"):
        expected = "pids_limit"
    else:
        expected = "exited"
    assert verdict == expected


class Table(RuleBasedStateMachine):
    """Many ops with random lives: bounds hold, the order of the queue holds, nothing ends twice or is forgotten."""

    ids = st.sampled_from([f"op-{number}" for number in range(12)])

    def __init__(self) -> None:
        super().__init__()
        self.limits = OpLimits(
            max_running=3, max_queued=4, result_ttl=50.0, result_bytes=8 * 2048, reattach_grace=5.0
        )
        self.table = OpTable(limits=self.limits)
        self.now = 0.0
        self.order: list[str] = []
        self.started: set[str] = set()
        self.ended: dict[str, str | None] = {}

    @rule(op_id=ids)
    def create(self, op_id: str) -> None:
        try:
            known = self.table.find(op_id, fingerprint=b"a")
        except ApiError as error:
            assert error.code == "expired"
            assert op_id in self.ended
            return
        if known is not None:
            return
        assert op_id not in self.ended
        try:
            self.table.add(new(op_id, now=self.now))
        except ApiError as error:
            assert (error.status, error.code) == (503, "busy")
            assert len(self.table.queue) == self.limits.max_queued
        else:
            self.order.append(op_id)

    @rule()
    def start(self) -> None:
        op = self.table.next(now=self.now)
        if op is not None:
            assert op.op_id == self.order.pop(0)
            assert op.op_id not in self.started
            self.started.add(op.op_id)

    @rule(op_id=ids, cause=st.sampled_from(["timeout", "killed", "sandbox_ended"]))
    def kill(self, op_id: str, cause: str) -> None:
        op = self.table.ops.get(op_id)
        if op is None:
            return
        was = op.state
        told = self.table.kill(op, cause, now=self.now)
        assert told == (was is RUNNING)
        if was is QUEUED:
            self.order.remove(op_id)
            self.ended[op_id] = op.verdict
            assert op.verdict == cause

    @rule(op_id=ids, facts=st.sampled_from([{"exit_code": 0}, {"exit_code": 3}, DIED, {}]))
    def finish(self, op_id: str, facts: dict[str, int | None]) -> None:
        op = self.table.ops.get(op_id)
        if op is None or op.state is QUEUED:
            return
        self.table.finish(op, facts=facts, now=self.now)
        self.ended.setdefault(op_id, op.verdict)

    @rule(op_id=ids)
    def watch(self, op_id: str) -> None:
        op = self.table.ops.get(op_id)
        if op is not None:
            self.table.attach(op)

    @rule(op_id=ids)
    def leave(self, op_id: str) -> None:
        op = self.table.ops.get(op_id)
        if op is not None and op.attached:
            grace = self.table.leave(op, now=self.now)
            assert (grace is None) == (op.attached > 0 or op.state is ENDED)

    @rule(seconds=st.floats(0.1, 60))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        dropped, due = self.table.expire(now=self.now)
        for op in dropped:
            assert op.state is ENDED
            assert not op.attached
        assert due is None or due > 0

    @precondition(lambda self: len(self.ended) > 6)
    @rule()
    def reset(self) -> None:
        self.table.forget()
        self.order, self.started, self.ended = [], set(), {}

    @invariant()
    def holds(self) -> None:
        table = self.table
        states = [op.state for op in table.ops.values()]
        assert table.running == states.count(RUNNING) <= self.limits.max_running
        assert list(table.queue) == self.order
        assert len(self.order) == states.count(QUEUED) <= self.limits.max_queued
        ended = [op for op in table.ops.values() if op.state is ENDED]
        assert table.held == sum(op.weight for op in ended)
        assert table.read == sum(op.weight for op in ended if op.attached)
        for op_id, verdict in self.ended.items():
            op = table.ops.get(op_id)
            assert op is None or op.verdict == verdict


TestTable = Table.TestCase
TestTable.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


def test_a_million_ids_are_remembered_in_16_bytes_each_at_most() -> None:
    memory = IdMemory(capacity=8000)
    for number in range(20_000):
        memory.add(f"id-{number}")
    assert all(f"id-{number}" in memory for number in range(12_000, 20_000))
    assert not any(f"other-{number}" in memory for number in range(20_000))
    assert "id-0" not in memory
    assert sum(len(table) * 8 for table in memory._tables) <= 9 * 1000 * 8 * 4
