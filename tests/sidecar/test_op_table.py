"""Each decision of an op's life, exactly: who may run, who is attached, what an end is called."""

from __future__ import annotations

import pytest
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.core.op import ANY, Action, Op, State, Stdin
from sandlot_sidecar.core.table import OVERHEAD, OpTable

from tests.sidecar.op_tables import LIMITS, Log, finish, new_op, table_of


def test_a_new_op_waits_and_nothing_is_known_of_its_end() -> None:
    op = new_op("a", now=7.0)
    said = {name: getattr(op, name) for name in Op.__slots__}
    assert said == {
        "op_id": "a",
        "chosen": True,
        "fingerprint": b"a",
        "spec": "spec",
        "command": None,
        "state": State.QUEUED,
        "stdin": Stdin.NONE,
        "asked": None,
        "facts": None,
        "impossible": None,
        "created": 7.0,
        "detached": False,
        "started": None,
        "finished": None,
        "started_at": None,
        "ended_at": None,
        "queued_before": 0.0,
        "attached": 0,
        "unattended_since": None,
        "cause": None,
        "cause_message": None,
        "sent_signal": None,
        "pid": None,
        "verdict": None,
        "exit_code": None,
        "signal": None,
        "message": None,
        "cpu": 0.0,
        "peak_memory": 0,
        "weight": 0,
        "trace": None,
        "log": None,
        "io": None,
    }
    table = OpTable(limits=LIMITS)
    assert (table.running, table.held, table.read, table.ops, len(table.queue)) == (0, 0, 0, {}, 0)
    assert table.expire(now=0.0) == ([], None)
    assert table.next(now=0.0) is None
    assert table.find("a") is None


def test_ops_run_in_order_and_so_many_at_once() -> None:
    table = table_of("a", "b", "c")
    first, second = table.next(now=5.0), table.next(now=6.0)
    assert first is table.ops["a"]
    assert second is table.ops["b"]
    assert first is not None
    assert second is not None
    assert (first.state, first.started, second.started) == (State.STARTING, 5.0, 6.0)
    assert (table.running, list(table.queue)) == (2, ["c"])
    assert table.next(now=7.0) is None
    finish(table, first, {"exit_code": 0}, now=8.0)
    assert table.running == 1
    assert table.next(now=9.0) is table.ops["c"]


def test_a_full_queue_refuses_and_says_how_full_all_is() -> None:
    table = table_of("a", "b", running=2)
    for name in ("c", "d", "e"):
        table.add(new_op(name))
    with pytest.raises(ApiError) as caught:
        table.add(new_op("f"))
    assert (caught.value.status, caught.value.code) == (503, "busy")
    assert caught.value.message == "2 ops are running and 3 are queued: try again after Retry-After"
    assert "f" not in table.ops
    table.add(new_op("g"), force=True)
    assert list(table.queue) == ["c", "d", "e", "g"]


def test_an_id_finds_its_op_and_no_other_spec_does() -> None:
    table = table_of("a")
    assert table.find("a") is table.find("a", fingerprint=b"a") is table.ops["a"]
    with pytest.raises(ApiError) as caught:
        table.find("a", fingerprint=b"b")
    error = caught.value
    assert (error.status, error.code, error.message) == (
        409,
        "op_conflict",
        "this op id belongs to another command: choose a new one",
    )
    assert (error.field, error.extra) == ("id", {"op_id": "a"})
    table.add(new_op("restored", fingerprint=ANY))
    assert table.find("restored", fingerprint=b"b") is table.ops["restored"]


def test_an_id_of_an_earlier_life_is_remembered_until_a_reset() -> None:
    table = table_of()
    table.remember("old")
    with pytest.raises(ApiError) as caught:
        table.find("old")
    error = caught.value
    assert (error.status, error.code, error.message) == (
        410,
        "expired",
        "the op ran, but its result is no longer kept: run it under a new id",
    )
    assert error.extra == {"op_id": "old"}
    table.forget()
    assert table.find("old") is None


def test_the_last_who_leaves_a_running_op_leaves_it_its_grace() -> None:
    table = table_of("a", running=1)
    op = table.ops["a"]
    table.attach(op)
    table.attach(op)
    assert (op.attached, table.read) == (2, 0)
    assert table.leave(op, now=3.0) is None
    assert (op.attached, op.unattended_since) == (1, None)
    assert table.leave(op, now=4.0) == 10.0
    assert (op.attached, op.unattended_since) == (0, 4.0)
    assert not table.unattended(op, now=13.9)
    assert table.unattended(op, now=14.0 - 0.0009)  # a timer that fires a little early
    assert not table.unattended(op, now=14.0 - 0.002)
    table.attach(op)
    assert op.unattended_since is None
    assert not table.unattended(op, now=1000.0)
    table.leave(op, now=0.0)
    assert table.unattended(op, now=10.0 - 0.001)


def test_an_op_whose_id_nobody_else_knows_has_no_grace() -> None:
    table = OpTable(limits=LIMITS)
    op = new_op("a", chosen=False)
    table.add(op)
    table.attach(op)
    assert table.leave(op, now=3.0) == 0.0


@pytest.mark.parametrize("why", ["detached", "ended", "attached"])
def test_who_needs_no_watcher_is_not_left_alone(why: str) -> None:
    table = table_of("a", running=1)
    op = table.ops["a"]
    table.attach(op)
    if why == "attached":
        table.leave(op, now=0.0)
        op.attached = 1
    elif why == "detached":
        op.detached = True
        assert table.leave(op, now=0.0) is None
        op.unattended_since = 0.0
    else:
        finish(table, op, {"exit_code": 0}, now=0.0)
        assert table.leave(op, now=0.0) is None
        op.unattended_since = 0.0
    assert not table.unattended(op, now=1000.0)


def test_one_that_waits_ends_where_it_is() -> None:
    table = table_of("a", "b", running=1)
    queued = table.ops["b"]
    assert queued.kill("client_gone", now=6.0, message="left") is Action.END
    table.settle(queued)
    assert (queued.finished, queued.exit_code, queued.started) == (6.0, None, None)
    assert (table.running, list(table.queue)) == (1, [])


def test_an_end_has_what_the_runner_saw_and_there_is_one() -> None:
    table = table_of("a", running=1)
    op = table.ops["a"]
    op.log = Log(100)
    facts = {"exit_code": 3, "cpu": "1.5", "peak_memory": "42"}
    finish(table, op, facts, now=9.0)
    said = (op.state, op.verdict, op.exit_code, op.signal, op.finished, op.cpu, op.peak_memory, op.weight)
    assert said == (State.ENDED, "exited", 3, None, 9.0, 1.5, 42, OVERHEAD + 100)
    assert (table.held, table.read) == (OVERHEAD + 100, 0)
    assert op.exited({"exit_code": 0}, now=10.0) is Action.IMPOSSIBLE
    assert (op.exit_code, op.finished, table.running, table.held) == (3, 9.0, 0, OVERHEAD + 100)
    other = table_of("b", running=1)
    lost = other.ops["b"]
    lost.sent_signal = 15
    finish(other, lost, {"signal": 15}, now=1.0)
    assert (lost.verdict, lost.message) == ("killed", "the caller sent signal 15")
    assert (lost.cpu, lost.peak_memory, lost.weight, lost.signal, lost.exit_code) == (
        0.0,
        0,
        OVERHEAD,
        15,
        143,
    )
