"""How long the result of an op is kept, exactly: by time, by room, and by who reads it."""

from __future__ import annotations

import pytest
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.core.table import OVERHEAD

from tests.sidecar.op_tables import ended, finish, new_op, table_of


def test_what_somebody_reads_is_counted_apart() -> None:
    table = table_of("a", "b", running=2)
    early, late = table.ops["a"], table.ops["b"]
    table.attach(early)
    finish(table, early, {"exit_code": 0}, now=1.0)
    finish(table, late, {"exit_code": 0}, now=1.0)
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
        finish(table, op, {"exit_code": 0}, now=1.0)
    assert table.read == 2 * OVERHEAD


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
    op = new_op("d")
    table.add(op)
    table.next(now=30.0)
    finish(table, op, {"exit_code": 0}, now=40.0)
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
        table.add(new_op(name))
    table.next(now=11.0)
    assert [op.op_id for op in table.forget()] == ["a", "b", "c"]
    assert (table.ops, len(table.queue), table.running, table.held, table.read) == ({}, 0, 0, 0, 0)
    assert table.expire(now=1000.0) == ([], None)
    assert table.find("a") is None
