"""Every state of an op meets everything that can happen to it; see sandlot_sidecar/core/op.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.core.op import Action, Op, State, Stdin

NOTHING, TELL, KILL, ASK, AWAIT, END, IMPOSSIBLE = (
    Action.NOTHING, Action.TELL_START, Action.KILL, Action.ASK, Action.AWAIT, Action.END, Action.IMPOSSIBLE,
)  # fmt: skip
DIED, FAILED = {"signal": 9}, {"exit_code": 3}

# Each by its name.
MAKE: dict[str, Callable[[Op], object]] = {
    "queued": lambda op: None,
    "starting": lambda op: op.launch(now=1.0),
    "running": lambda op: (MAKE["starting"](op), op.has_started(7, at=1.0)),
    "shown": lambda op: (MAKE["starting"](op), op.has_started(None, at=1.0)),
    "ending": lambda op: (MAKE["running"](op), op.kill("timeout", message="too long", now=2.0)),
    "ending untold": lambda op: (MAKE["starting"](op), op.kill("timeout", message="too long", now=2.0)),
    "asks disk": lambda op: (MAKE["running"](op), op.exited(FAILED, now=2.0)),
    "asks alive": lambda op: (MAKE["running"](op), op.exited(DIED, now=2.0)),
    "asks counters": lambda op: (MAKE["running"](op), op.runner_lost(now=2.0)),
    "asks alive of a lost one": lambda op: (MAKE["asks counters"](op), op.counted({}, now=2.0)),
    "init dead": lambda op: (MAKE["asks alive"](op), op.init_lives(False, mortal=False, now=2.0)),
    "mortal init dead": lambda op: (MAKE["asks alive"](op), op.init_lives(False, mortal=True, now=2.0)),
    "lost while ending": lambda op: (MAKE["ending"](op), op.runner_lost(now=2.0)),
    "ended with init": lambda op: (MAKE["ending"](op), op.exited({**DIED, "init_killed": True}, now=2.0)),
    "ended": lambda op: (MAKE["running"](op), op.exited({"exit_code": 0}, now=2.0)),
}
EVENTS: dict[str, Callable[[Op], Action]] = {
    "launch": lambda op: op.launch(now=3.0),
    "has_started": lambda op: op.has_started(8, at=3.0),
    "kill": lambda op: op.kill("killed", message="asked for", now=3.0),
    "at_limit": lambda op: op.at_limit("oom"),
    "abandon": lambda op: op.abandon("sandbox_ended", message="over", now=3.0),
    "init_lost": lambda op: op.init_lost("init", mortal=False, now=3.0),
    "mortal_init_lost": lambda op: op.init_lost("init", mortal=True, now=3.0),
    "exited": lambda op: op.exited({"exit_code": 0}, now=3.0),
    "failed": lambda op: op.exited(FAILED, now=3.0),
    "died": lambda op: op.exited(DIED, now=3.0),
    "runner_lost": lambda op: op.runner_lost(now=3.0),
    "disk_is_full": lambda op: op.disk_is_full("sandbox", now=3.0),
    "counted": lambda op: op.counted({"signal": 9, "oom": True}, now=3.0),
    "counted_nothing": lambda op: op.counted({}, now=3.0),
    "init_lives": lambda op: op.init_lives(True, mortal=False, now=3.0),
    "init_is_dead": lambda op: op.init_lives(False, mortal=False, now=3.0),
    "mortal_init_is_dead": lambda op: op.init_lives(False, mortal=True, now=3.0),
    "being_killed": lambda op: op.being_killed({"exit_code": 0}),
    "settled": lambda op: op.settled(now=3.0),
    "died_with_init": lambda op: op.exited({**DIED, "init_killed": True}, now=3.0),
}
# What is to be done, and the verdict of one that ends; events in the order above.
TABLE: dict[str, str] = {
    "queued": (
        "nothing impossible end:killed impossible end:sandbox_ended nothing nothing impossible impossible "
        "impossible impossible impossible impossible impossible impossible impossible impossible impossible "
        "impossible impossible"
    ),
    "starting": (
        "impossible tell kill nothing end:sandbox_ended end:sandbox_broken end:signaled end:exited ask ask "
        "ask impossible impossible impossible impossible impossible impossible impossible impossible await"
    ),
    "running": (
        "impossible nothing kill nothing end:sandbox_ended end:sandbox_broken end:signaled end:exited ask ask "
        "ask impossible impossible impossible impossible impossible impossible impossible impossible await"
    ),
    "shown": (
        "impossible nothing kill nothing end:sandbox_ended end:sandbox_broken end:signaled end:exited ask ask "
        "ask impossible impossible impossible impossible impossible impossible impossible impossible await"
    ),
    "ending": (
        "impossible nothing kill nothing end:timeout end:timeout end:timeout end:exited end:exited "
        "end:timeout await impossible impossible impossible impossible impossible impossible await impossible "
        "await"
    ),
    "ending untold": (
        "impossible tell kill nothing end:timeout end:timeout end:timeout end:exited end:exited end:timeout "
        "await impossible impossible impossible impossible impossible impossible await impossible await"
    ),
    "asks disk": (
        "impossible impossible nothing impossible end:exited end:exited end:exited impossible "
        "impossible impossible impossible end:disk_full impossible impossible impossible impossible "
        "impossible impossible impossible impossible"
    ),
    "asks alive": (
        "impossible impossible nothing impossible end:sandbox_ended end:sandbox_broken end:signaled "
        "impossible impossible impossible impossible impossible impossible impossible end:signaled await "
        "await impossible impossible impossible"
    ),
    "asks counters": (
        "impossible impossible nothing impossible end:sandbox_ended end:sandbox_broken end:signaled "
        "impossible impossible impossible impossible impossible end:oom ask impossible impossible impossible "
        "impossible impossible impossible"
    ),
    "asks alive of a lost one": (
        "impossible impossible nothing impossible end:sandbox_ended end:sandbox_broken end:signaled "
        "impossible impossible impossible impossible impossible impossible impossible end:sandbox_broken "
        "await await impossible impossible impossible"
    ),
    "init dead": (
        "impossible impossible nothing impossible end:sandbox_broken end:sandbox_broken end:sandbox_broken "
        "impossible impossible impossible impossible impossible impossible impossible impossible impossible "
        "impossible impossible end:sandbox_broken impossible"
    ),
    "mortal init dead": (
        "impossible impossible nothing impossible end:signaled end:signaled end:signaled impossible "
        "impossible impossible impossible impossible impossible impossible impossible impossible impossible "
        "impossible end:signaled impossible"
    ),
    "lost while ending": (
        "impossible impossible nothing impossible end:timeout end:timeout end:timeout impossible impossible "
        "impossible impossible impossible impossible impossible impossible impossible impossible impossible "
        "end:timeout impossible"
    ),
    "ended with init": (
        "impossible impossible nothing impossible end:timeout end:timeout end:timeout impossible impossible "
        "impossible impossible impossible impossible impossible impossible impossible impossible impossible "
        "end:timeout impossible"
    ),
    "ended": (
        "impossible impossible nothing impossible nothing nothing nothing impossible impossible impossible "
        "impossible nothing nothing nothing nothing nothing nothing impossible nothing impossible"
    ),
}
DO = {
    "nothing": NOTHING,
    "tell": TELL,
    "kill": KILL,
    "ask": ASK,
    "await": AWAIT,
    "end": END,
    "impossible": IMPOSSIBLE,
}


def made(name: str) -> Op:
    op = Op(op_id="a", chosen=True, fingerprint=b"", spec=None, now=0.0)
    MAKE[name](op)
    return op


def seen(op: Op) -> dict[str, Any]:
    return {name: getattr(op, name) for name in Op.__slots__ if name != "impossible"}


def test_the_table_has_every_pair() -> None:
    assert set(TABLE) == set(MAKE)
    assert {len(row.split()) for row in TABLE.values()} == {len(EVENTS)}
    assert {made(name).state for name in MAKE} == set(State)


@pytest.mark.parametrize("name", TABLE)
def test_what_is_to_be_done(name: str) -> None:
    for (event, happens), word in zip(EVENTS.items(), TABLE[name].split(), strict=True):
        op = made(name)
        before = seen(op)
        do, _, verdict = word.partition(":")
        assert happens(op) is DO[do], (name, event)
        if do == "end":
            assert (op.state, op.verdict, op.finished) == (State.ENDED, verdict, 3.0), (name, event)
        elif do == "impossible":
            assert (seen(op), op.impossible is None) == (before, False), (name, event)
        else:
            assert op.impossible is None, (name, event)
            assert op.verdict == before["verdict"], (name, event)
        if name == "ended":
            assert seen(op) == before, event


def test_the_first_cause_stays_and_counts_where_the_op_died_of_it() -> None:
    op = made("ending")
    op.kill("killed", message="asked for", now=3.0)
    assert (op.cause, op.cause_message) == ("timeout", "too long")
    assert op.exited(DIED, now=4.0) is END
    assert (op.verdict, op.message, op.finished, op.exit_code) == ("timeout", "too long", 4.0, 137)


def test_a_start_is_told_once_whoever_sees_it_first() -> None:
    op = made("shown")
    assert (op.pid, op.started_at) == (None, 1.0)
    assert op.has_started(8, at=9.0) is NOTHING
    assert (op.pid, op.started_at) == (8, 1.0)


def test_what_it_ended_with_stays_while_the_executor_kills_what_is_left() -> None:
    op = made("ending")
    assert op.being_killed({"exit_code": 0, "cpu": 1.5}) is AWAIT
    assert op.init_lost("init", mortal=True, now=3.0) is END
    assert (op.verdict, op.exit_code, op.cpu) == ("exited", 0, 1.5)


def test_its_limit_is_the_cause_although_its_runner_says_no_more() -> None:
    op = made("running")
    op.at_limit("pids_limit")
    assert op.state is State.ENDING
    assert op.runner_lost(now=3.0) is AWAIT
    assert op.settled(now=4.0) is END
    assert (op.verdict, op.message) == ("pids_limit", "the process limit was reached")


@pytest.mark.parametrize(
    ("name", "lives", "message"),
    [
        ("asks alive of a lost one", True, "the runner of the command was lost"),
        ("asks alive of a lost one", False, "the sandbox's init process was lost"),
        ("asks alive", False, "the sandbox's init process was lost"),
    ],
)
def test_the_infrastructure_s_end_says_what_was_lost(name: str, lives: bool, message: str) -> None:
    op = made(name)
    if lives:
        assert op.init_lives(True, mortal=False, now=3.0) is END
    else:
        assert op.init_lives(False, mortal=False, now=3.0) is AWAIT
        assert op.init_lost("a new one was started", mortal=False, now=4.0) is END
    assert (op.verdict, op.message, op.exit_code) == ("sandbox_broken", message, None)


def test_what_was_seen_of_it_joins_the_answer() -> None:
    op = made("running")
    op.exited({"exit_code": 3, "cpu": 1.5, "peak_memory": 42}, now=2.0)
    assert op.disk_is_full(None, now=3.0) is END
    assert (op.verdict, op.exit_code, op.cpu, op.peak_memory) == ("exited", 3, 1.5, 42)


def test_its_way_in_closes_once() -> None:
    op = made("running")
    assert not op.close_stdin()
    op.stdin = Stdin.OPEN
    op.check_stdin(offset=0)
    assert op.close_stdin()
    assert not op.close_stdin()
    with pytest.raises(ApiError) as caught:
        op.check_stdin(offset=5)
    assert (caught.value.code, caught.value.extra) == ("stdin_closed", {"offset": 5})
    op.exited({"exit_code": 0}, now=2.0)
    with pytest.raises(ApiError) as caught:
        op.check_stdin(offset=5)
    assert (caught.value.code, caught.value.extra) == ("op_ended", {"verdict": "exited", "offset": 5})
    late = made("ended")
    late.stdin = Stdin.OPEN
    assert not late.close_stdin()
