"""What a gateway counts of a run: few of its commands are kept, and none of it longer than its lease."""

from __future__ import annotations

import json

from sandlot_contract.ids import SandboxId
from sandlot_gateway.core.run_tally import (
    COMMAND,
    SLOWEST,
    RunTally,
    SlowCommand,
    command_in,
    total,
)
from sandlot_gateway.core.runs import RunId, RunKey

RUN: RunKey = "alpha", RunId("r")


def slow(seconds: float, *, op: str = "", sandbox: str = "sbx-1") -> SlowCommand:
    return SlowCommand(SandboxId(sandbox), op, "true", seconds, 1.0, None)


def ran(counts: RunTally, seconds: float, key: RunKey = RUN, *, op: str = "") -> bool:
    wanted = counts.note(key, seconds=seconds, queued=0.5)
    if wanted:
        counts.keep(key, slow(seconds, op=op))
    return wanted


def test_the_slowest_are_kept_and_all_are_counted() -> None:
    counts = RunTally(since=5.0)
    for number in range(100):
        ran(counts, float(number))
    assert not ran(counts, 0.1)  # a command that is not among them costs no more than a comparison
    of = counts.of(RUN)
    assert [one.seconds for one in of.slowest] == [float(number) for number in range(99, 99 - SLOWEST, -1)]
    assert (of.count, of.queued_seconds, of.since) == (101, 50.5, 5.0)
    assert counts.of(("beta", RUN[1])).count == 0


def test_a_repeated_request_is_one_slow_command_also_at_another_gateway() -> None:
    one, other = RunTally(since=5.0), RunTally(since=7.0)
    ran(one, 1.0, op="op-1")
    ran(one, 3.0, op="op-1")
    ran(other, 2.0, op="op-1")
    ran(other, 9.0)
    ran(other, 9.0)
    one.ended(RUN, "deleted")
    other.ended(RUN, "deleted")
    other.ended(RUN, "node_lost")
    both = total([one.of(RUN), other.of(RUN)])
    assert [(command.op_id, command.seconds) for command in both.slowest] == [
        ("", 9.0),
        ("", 9.0),
        ("op-1", 3.0),
    ]
    assert (both.count, both.since, both.ends) == (5, 7.0, {"deleted": 2, "node_lost": 1})


def test_runs_are_forgotten_with_their_leases_and_a_tenant_has_a_bounded_number() -> None:
    counts = RunTally(since=0.0)
    ran(counts, 1.0)
    counts.forget_but([], now=100.0)
    counts.forget_but([RUN], now=150.0)  # another gateway had just begun it
    counts.forget_but([], now=161.0)
    assert counts.of(RUN).count == 1
    counts.forget_but([], now=221.0)
    assert counts.of(RUN).count == 0
    ran(counts, 1.0, ("beta", RUN[1]))
    for number in range(201):
        ran(counts, 1.0, ("alpha", RunId(f"r{number}")))
    kept = [number for number in range(201) if counts.of(("alpha", RunId(f"r{number}"))).count]
    assert kept == list(range(1, 201))
    assert counts.of(("beta", RUN[1])).count == 1  # no tenant pushes out another's


def test_a_tenants_new_run_pushes_out_one_without_a_lease_or_the_least_used() -> None:
    counts = RunTally(since=0.0)
    keys: list[RunKey] = [("alpha", RunId(f"r{number}")) for number in range(202)]
    for key in keys[:200]:
        ran(counts, 1.0, key)
    counts.forget_but([key for key in keys if key != keys[7]], now=100.0)
    ran(counts, 1.0, keys[0])  # the oldest one goes on
    for key in keys[200:]:
        ran(counts, 1.0, key)
    assert [key for key in keys if not counts.of(key).count] == [keys[1], keys[7]]
    assert counts.of(keys[0]).count == 2


def test_the_text_of_a_command_is_short_and_of_any_body() -> None:
    assert command_in(json.dumps({"command": "x" * 1000, "env": {"KEY": "secret"}}).encode()) == "x" * COMMAND
    assert command_in(b'{"command": ["echo", "a b"]}') == "echo a b"
    for body in (b"", b"[", b'{"command": 3}', b'{"stdin": "' + b"x" * (1 << 20) + b'"}', b"[" * 5000):
        assert command_in(body) is None
