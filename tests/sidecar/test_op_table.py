"""Each decision of an op's life, exactly: who may run, who is attached, what an end is called, what is kept."""

from __future__ import annotations

from typing import Any

import pytest
from sandlot_sidecar.config import OpLimits
from sandlot_sidecar.server.errors import ApiError
from sandlot_sidecar.server.machine import (
    ANY,
    ENDED,
    OVERHEAD,
    QUEUED,
    RUNNING,
    SIGKILL,
    Op,
    OpTable,
    exit_code,
    judge,
)

LIMITS = OpLimits(
    max_running=2, max_queued=3, reattach_grace=10.0, result_ttl=100.0, result_bytes=3 * OVERHEAD
)


class Log:
    """Output of a size."""

    def __init__(self, size: int) -> None:
        self.size = size


def new(op_id: str, *, chosen: bool = True, fingerprint: bytes = b"a", now: float = 1.0) -> Op:
    return Op(op_id=op_id, chosen=chosen, fingerprint=fingerprint, spec="spec", now=now)


def table_of(*names: str, running: int = 0, now: float = 1.0) -> OpTable:
    """A table with these ops, of which the first few run."""
    table = OpTable(limits=LIMITS)
    for name in names:
        table.add(new(name))
    for _ in range(running):
        table.next(now=now)
    return table


def test_a_new_op_waits_and_nothing_is_known_of_its_end() -> None:
    op = new("a", now=7.0)
    said = {name: getattr(op, name) for name in Op.__slots__}
    assert said == {
        "op_id": "a",
        "chosen": True,
        "fingerprint": b"a",
        "spec": "spec",
        "state": QUEUED,
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
    assert (first.state, first.started, second.started) == (RUNNING, 5.0, 6.0)
    assert (table.running, list(table.queue)) == (2, ["c"])
    assert table.next(now=7.0) is None
    table.finish(first, facts={"exit_code": 0}, now=8.0)
    assert table.running == 1
    assert table.next(now=9.0) is table.ops["c"]


def test_a_full_queue_refuses_and_says_how_full_all_is() -> None:
    table = table_of("a", "b", running=2)
    for name in ("c", "d", "e"):
        table.add(new(name))
    with pytest.raises(ApiError) as caught:
        table.add(new("f"))
    assert (caught.value.status, caught.value.code) == (503, "busy")
    assert caught.value.message == "2 ops run and 3 wait; try again after Retry-After"
    assert "f" not in table.ops
    table.add(new("g"), force=True)
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
    table.add(new("restored", fingerprint=ANY))
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
    op = new("a", chosen=False)
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
        table.finish(op, facts={"exit_code": 0}, now=0.0)
        assert table.leave(op, now=0.0) is None
        op.unattended_since = 0.0
    assert not table.unattended(op, now=1000.0)


def test_a_kill_is_the_reason_of_the_end_and_the_first_stays_it() -> None:
    table = table_of("a", "b", running=1)
    running, queued = table.ops["a"], table.ops["b"]
    assert table.kill(running, "timeout", now=2.0, message="too long") is True
    assert table.kill(running, "killed", now=3.0, message="asked for") is True
    assert (running.state, running.cause, running.cause_message) == (RUNNING, "timeout", "too long")
    table.finish(running, facts={"signal": SIGKILL}, now=4.0)
    assert (running.verdict, running.message, running.finished) == ("timeout", "too long", 4.0)
    assert table.kill(running, "killed", now=5.0) is False
    assert table.kill(queued, "client_gone", now=6.0, message="left") is False
    assert (queued.state, queued.verdict, queued.message) == (ENDED, "client_gone", "left")
    assert (queued.finished, queued.exit_code, queued.started) == (6.0, None, None)
    assert (table.running, list(table.queue)) == (0, [])


def test_an_end_has_what_the_runner_saw_and_there_is_one() -> None:
    table = table_of("a", running=1)
    op = table.ops["a"]
    op.log = Log(100)
    facts = {"exit_code": 3, "cpu": "1.5", "peak_memory": "42"}
    table.finish(op, facts=facts, now=9.0)
    said = (op.state, op.verdict, op.exit_code, op.signal, op.finished, op.cpu, op.peak_memory, op.weight)
    assert said == (ENDED, "exited", 3, None, 9.0, 1.5, 42, OVERHEAD + 100)
    assert (table.held, table.read) == (OVERHEAD + 100, 0)
    table.finish(op, facts={"exit_code": 0}, now=10.0)
    assert (op.exit_code, op.finished, table.running, table.held) == (3, 9.0, 0, OVERHEAD + 100)
    other = table_of("b", running=1)
    lost = other.ops["b"]
    lost.sent_signal = 15
    other.finish(lost, facts={"signal": 15}, now=1.0)
    assert (lost.verdict, lost.message) == ("killed", "signal 15 was asked for")
    assert (lost.cpu, lost.peak_memory, lost.weight, lost.signal, lost.exit_code) == (
        0.0,
        0,
        OVERHEAD,
        15,
        143,
    )


def test_what_somebody_reads_is_counted_apart() -> None:
    table = table_of("a", "b", running=2)
    early, late = table.ops["a"], table.ops["b"]
    table.attach(early)
    table.finish(early, facts={"exit_code": 0}, now=1.0)
    table.finish(late, facts={"exit_code": 0}, now=1.0)
    assert (table.held, table.read) == (2 * OVERHEAD, OVERHEAD)
    table.attach(late)
    assert table.read == 2 * OVERHEAD
    table.attach(late)
    assert table.read == 2 * OVERHEAD
    table.leave(late, now=2.0)
    assert table.read == 2 * OVERHEAD
    table.leave(late, now=2.0)
    assert table.read == OVERHEAD
    table.leave(early, now=2.0)
    assert table.read == 0


def test_of_what_is_read_already_when_it_ends_all_is_counted() -> None:
    table = table_of("a", "b", running=2)
    for op in table.ops.values():
        table.attach(op)
        table.finish(op, facts={"exit_code": 0}, now=1.0)
    assert table.read == 2 * OVERHEAD


def ended(*ends: tuple[str, float], size: int = 0) -> OpTable:
    """A table of ops that ended at these times, in this order."""
    table = OpTable(limits=LIMITS)
    for name, at in ends:
        op = new(name)
        op.log = Log(size)
        table.add(op)
        table.next(now=0.0)
        table.finish(op, facts={"exit_code": 0}, now=at)
    return table


def test_results_are_kept_for_their_time_and_the_next_is_told() -> None:
    table = ended(("first", 0.0))
    assert table.expire(now=99.5) == ([], 0.5)
    assert table.expire(now=100.0)[1] is None
    table = ended(("a", 10.0), ("b", 40.0))
    a, b = table.ops["a"], table.ops["b"]
    assert table.expire(now=109.0) == ([], 1.0)
    assert table.expire(now=110.0) == ([a], 30.0)
    assert (set(table.ops), table.held) == ({"b"}, OVERHEAD)
    assert table.expire(now=150.0) == ([b], None)
    assert (table.ops, table.held) == ({}, 0)


def test_results_that_take_too_much_room_go_from_the_oldest_on() -> None:
    table = ended(("a", 10.0), ("b", 20.0), ("c", 30.0))
    assert table.expire(now=30.0) == ([], 80.0)  # exactly as much as there is room for
    op = new("d")
    table.add(op)
    table.next(now=30.0)
    table.finish(op, facts={"exit_code": 0}, now=40.0)
    dropped, due = table.expire(now=40.0)
    assert ([one.op_id for one in dropped], due) == (["a"], 80.0)
    with pytest.raises(ApiError, match="no longer kept"):
        table.find("a")


def test_what_somebody_reads_stays_in_its_place_and_takes_no_room() -> None:
    table = ended(("a", 10.0), ("b", 20.0), ("c", 30.0))
    table.attach(table.ops["a"])
    table.attach(table.ops["b"])
    assert table.expire(now=30.0) == ([], 80.0)
    assert table.expire(now=109.5) == ([], 1.0)  # looked at again in a second at the earliest
    dropped, due = table.expire(now=130.0)
    assert ([one.op_id for one in dropped], due) == (["c"], 1.0)
    table.leave(table.ops["a"], now=130.0)
    table.leave(table.ops["b"], now=130.0)
    dropped, due = table.expire(now=130.0)
    assert ([one.op_id for one in dropped], due) == (["a", "b"], None)


def test_of_two_that_are_read_the_next_to_be_due_is_told() -> None:
    table = ended(("a", 50.0), ("b", 20.0))
    for name in ("a", "b"):
        table.attach(table.ops[name])
    assert table.expire(now=60.0) == ([], 60.0)
    assert table.expire(now=119.5) == ([], 1.0)
    table.leave(table.ops["b"], now=60.0)
    assert table.expire(now=60.0) == ([], 60.0)


def test_an_op_of_our_own_leaves_nothing() -> None:
    table = ended(("a", 10.0), ("b", 20.0), ("c", 30.0))
    table.attach(table.ops["b"])
    for name, left in (("a", 2), ("b", 1)):
        op = table.ops[name]
        for _ in range(2):  # the second time there is nothing to do
            table.drop(op)
            assert (len(table.ops), table.held) == (left, left * OVERHEAD)
    assert (set(table.ops), table.read) == ({"c"}, 0)
    assert table.find("a") is None  # nobody knew it, so nobody is told that it is gone
    dropped, _ = table.expire(now=500.0)
    assert [one.op_id for one in dropped] == ["c"]


def test_after_a_reset_nothing_has_ever_run() -> None:
    table = ended(("a", 10.0))
    table.attach(table.ops["a"])
    for name in ("b", "c"):
        table.add(new(name))
    table.next(now=11.0)
    assert [op.op_id for op in table.forget()] == ["a", "b", "c"]
    assert (table.ops, len(table.queue), table.running, table.held, table.read) == ({}, 0, 0, 0, 0)
    assert table.expire(now=1000.0) == ([], None)
    assert table.find("a") is None


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"exit_code": 3}, 3),
        ({"signal": 9, "exit_code": None}, 137),
        ({"signal": 0, "exit_code": 0}, 0),
        ({}, None),
    ],
)
def test_exit_codes_are_a_shells(facts: dict[str, Any], code: int | None) -> None:
    assert exit_code(facts) == code


@pytest.mark.parametrize(
    ("cause", "sent", "facts", "end"),
    [
        # Lost, or never run: our reason if there is one.
        (None, None, {}, ("sandbox_broken", "why")),
        ("timeout", None, {}, ("timeout", "why")),
        # Ended by our kill, or by itself while that was on its way.
        ("timeout", None, {"signal": 9}, ("timeout", "why")),
        ("timeout", None, {"signal": 15}, ("signaled", "died of signal 15")),
        ("timeout", None, {"exit_code": 0}, ("exited", None)),
        ("sandbox_broken", None, {"exit_code": 0}, ("sandbox_broken", "why")),
        (None, None, {"signal": 9}, ("signaled", "died of signal 9")),
        (None, 9, {"signal": 9}, ("killed", "signal 9 was asked for")),
        (None, 9, {"signal": 15}, ("signaled", "died of signal 15")),
        # What ran out, where the command failed of it.
        (None, None, {"exit_code": 1, "oom": True}, ("oom", "the memory limit was reached")),
        (None, None, {"signal": 9, "oom": True}, ("oom", "the memory limit was reached")),
        (None, None, {"signal": 15, "exit_code": 0, "oom": True}, ("oom", "the memory limit was reached")),
        (None, None, {"exit_code": 0, "oom": True}, ("exited", None)),
        (
            None,
            None,
            {"exit_code": 1, "node_oom": True},
            ("sandbox_broken", "the node is out of memory, by no doing of this sandbox"),
        ),
        (None, None, {"exit_code": 0, "node_oom": True}, ("exited", None)),
        (None, None, {"exit_code": 1, "disk_full": "sandbox"}, ("disk_full", "the sandbox's disk was full")),
        (None, None, {"exit_code": 0, "disk_full": "sandbox"}, ("exited", None)),
        (
            None,
            None,
            {"exit_code": 1, "disk_full": "node"},
            ("sandbox_broken", "the disk of the node is full, by no doing of this sandbox"),
        ),
        (None, None, {"exit_code": 0, "disk_full": "node"}, ("exited", None)),
        (None, None, {"exit_code": 1, "pids_hit": True}, ("pids_limit", "the process limit was reached")),
        (None, None, {"exit_code": 1}, ("exited", None)),
        # Could not be started.
        (None, None, {"failed": "spawn", "message": "m", "pids_hit": True}, ("pids_limit", "m")),
        (None, None, {"failed": "pids_limit", "message": "m"}, ("pids_limit", "m")),
        (None, None, {"failed": "oom", "message": "m"}, ("oom", "m")),
        (None, None, {"failed": "spawn", "message": "m", "exit_code": 126}, ("exited", "m")),
        (None, None, {"failed": "spawn", "message": "m", "exit_code": 127}, ("exited", "m")),
        (None, None, {"failed": "spawn", "message": "m", "exit_code": 128}, ("start_failed", "m")),
        (None, None, {"failed": "spawn", "message": "m", "field": "user"}, ("start_failed", "user: m")),
        ("timeout", None, {"failed": "spawn", "message": "m"}, ("start_failed", "m")),
    ],
)
def test_what_an_end_is_called(
    cause: str | None, sent: int | None, facts: dict[str, Any], end: tuple[str, str | None]
) -> None:
    assert judge(cause=cause, cause_message="why", sent_signal=sent, facts=facts) == end
