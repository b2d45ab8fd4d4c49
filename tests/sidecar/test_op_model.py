"""Random long lives of many ops, without I/O, against a model of what they meet."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.core.limits import OpLimits
from sandlot_sidecar.core.op import Action, Op, State
from sandlot_sidecar.core.table import OpTable
from sandlot_sidecar.core.verdicts import Question

from tests.sidecar.op_tables import DIED, WITH_RUNNER, new_op


class Ops(RuleBasedStateMachine):
    """Many ops, their runners and the executor, which may be lost or late: each op ends once, whatever comes when."""

    ids = st.sampled_from([f"op-{number}" for number in range(12)])
    facts = st.sampled_from(
        [
            {"exit_code": 0},
            {"exit_code": 3},
            DIED,
            {"signal": 15},
            {"failed": "oom"},
            {**DIED, "init_killed": True},
        ]
    )

    def __init__(self) -> None:
        super().__init__()
        self.limits = OpLimits(
            max_running=3, max_queued=4, result_ttl=50.0, result_bytes=8 * 2048, reattach_grace=5.0
        )
        self.table = OpTable(limits=self.limits)
        self.now = 0.0
        self.order: list[str] = []
        self.started: set[str] = set()
        self.told: set[str] = set()
        self.killed: set[str] = set()  # ops whose runner was told to kill them
        self.asked: list[tuple[Op, Question]] = []  # of the executor, not answered yet
        self.ended: dict[str, str] = {}

    def do(self, op: Op, do: Action) -> None:
        """As the driver does."""
        assert do is not Action.IMPOSSIBLE, (op.state, op.impossible)
        if do is Action.END:
            assert op.op_id not in self.ended
            assert op.verdict is not None
            self.table.settle(op)
            self.ended[op.op_id] = op.verdict
            if op.op_id in self.order:
                self.order.remove(op.op_id)
        elif do is Action.TELL_START:
            assert op.op_id not in self.told
            self.told.add(op.op_id)
        elif do is Action.KILL:
            assert op.state is State.ENDING
            self.killed.add(op.op_id)
        elif do is Action.AWAIT:
            assert op.state is State.SETTLING
        elif do is Action.ASK:
            assert op.asked is not None
            self.asked.append((op, op.asked))

    def in_state(self, *states: State) -> list[Op]:
        return [op for op in self.table.ops.values() if op.state in states]

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
            self.table.add(new_op(op_id, now=self.now))
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

    @rule(op_id=ids, cause=st.sampled_from(["timeout", "killed", "client_gone"]))
    def kill(self, op_id: str, cause: str) -> None:
        op = self.table.ops.get(op_id)
        if op is not None:
            waited = op.state is State.QUEUED
            self.do(op, op.kill(cause, message=None, now=self.now))
            assert not waited or op.verdict == cause

    @precondition(lambda self: self.in_state(*WITH_RUNNER))
    @rule(choice=st.integers(0, 99), word=st.sampled_from(["started", "shown", "kills"]))
    def runner_speaks(self, choice: int, word: str) -> None:
        op = pick(self.in_state(*WITH_RUNNER), choice)
        if word == "kills":
            self.do(op, op.at_limit("pids_limit"))
        else:
            self.do(op, op.has_started(7 if word == "started" else None, at=self.now))

    @precondition(lambda self: self.in_state(*WITH_RUNNER))
    @rule(choice=st.integers(0, 99), facts=facts)
    def exits(self, choice: int, facts: dict[str, Any]) -> None:
        op = pick(self.in_state(*WITH_RUNNER), choice)
        self.do(op, op.exited(dict(facts), now=self.now))

    @precondition(lambda self: self.in_state(State.ENDING))
    @rule(choice=st.integers(0, 99), facts=facts)
    def exits_beside_a_kill(self, choice: int, facts: dict[str, Any]) -> None:
        op = pick(self.in_state(State.ENDING), choice)
        self.do(op, op.being_killed(dict(facts)))

    @precondition(lambda self: self.in_state(State.SETTLING))
    @rule(choice=st.integers(0, 99))
    def kill_is_over(self, choice: int) -> None:
        op = pick(self.in_state(State.SETTLING), choice)
        self.do(op, op.settled(now=self.now))

    @precondition(lambda self: self.in_state(*WITH_RUNNER))
    @rule(choice=st.integers(0, 99))
    def runner_is_lost(self, choice: int) -> None:
        op = pick(self.in_state(*WITH_RUNNER), choice)
        self.do(op, op.runner_lost(now=self.now))

    @precondition(lambda self: self.asked)
    @rule(choice=st.integers(0, 99), yes=st.booleans(), mortal=st.booleans())
    def executor_answers(self, choice: int, yes: bool, mortal: bool) -> None:
        """Also of an op that has ended meanwhile."""
        op, ask = self.asked.pop(choice % len(self.asked))
        late = op.state is State.ENDED
        if ask is Question.DISK:
            do = op.disk_is_full("sandbox" if yes else None, now=self.now)
        elif ask is Question.COUNTERS:
            do = op.counted({**DIED, "oom": True} if yes else {}, now=self.now)
        else:
            do = op.init_lives(yes, mortal=mortal, now=self.now)
        assert (do is Action.NOTHING) == late
        self.do(op, do)

    @rule(mortal=st.booleans())
    def init_is_lost(self, mortal: bool) -> None:
        for op in list(self.table.ops.values()):
            self.do(op, op.init_lost("lost", mortal=mortal, now=self.now))
        assert not self.in_state(*WITH_RUNNER, State.EXPLAINING, State.SETTLING)

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
            assert (grace is None) == (op.attached > 0 or op.state is State.ENDED)

    @rule(seconds=st.floats(0.1, 60))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        dropped, due = self.table.expire(now=self.now)
        for op in dropped:
            assert op.state is State.ENDED
            assert not op.attached
        assert due is None or due > 0

    @precondition(lambda self: len(self.ended) > 6)
    @rule()
    def reset(self) -> None:
        for op in list(self.table.ops.values()):
            self.do(op, op.abandon("sandbox_ended", message="reset", now=self.now))
        assert all(op.state is State.ENDED for op in self.table.ops.values())
        assert self.table.running == 0
        self.table.forget()
        self.order, self.started, self.ended = [], set(), {}
        self.told, self.killed = set(), set()

    @invariant()
    def holds(self) -> None:
        table = self.table
        states = [op.state for op in table.ops.values()]
        waiting, over = states.count(State.QUEUED), states.count(State.ENDED)
        assert table.running == len(states) - waiting - over <= self.limits.max_running
        assert list(table.queue) == self.order
        assert len(self.order) == waiting <= self.limits.max_queued
        ended = [op for op in table.ops.values() if op.state is State.ENDED]
        assert table.held == sum(op.weight for op in ended)
        assert table.read == sum(op.weight for op in ended if op.attached)
        for op_id, verdict in self.ended.items():
            op = table.ops.get(op_id)
            assert op is None or op.verdict == verdict
        assert all(op.cause is None for op in self.in_state(State.EXPLAINING)), "it ended by itself"
        asked = {op.op_id for op, _ in self.asked}
        assert all(op.op_id in asked for op in self.in_state(State.EXPLAINING)), "nobody will end it"

    def teardown(self) -> None:
        """From here on runners and the executor say what there is to say: every op ends."""
        while self.in_state(State.QUEUED, *WITH_RUNNER, State.EXPLAINING, State.SETTLING):
            self.start()
            for op in self.in_state(State.SETTLING):
                self.do(op, op.init_lost("lost", mortal=True, now=self.now))
            for op in self.in_state(*WITH_RUNNER):
                self.do(op, op.exited(DIED if op.op_id in self.killed else {"exit_code": 0}, now=self.now))
            while self.asked:
                self.executor_answers(choice=0, yes=True, mortal=False)


def pick(among: list[Op], choice: int) -> Op:
    return among[choice % len(among)]


TestOps = Ops.TestCase
TestOps.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
