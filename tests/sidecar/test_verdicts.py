"""What the end of an op is called, and what is asked before."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from sandlot_sidecar.core.verdicts import SIGKILL, Question, exit_code, judge, question

CAUSES = (None, "timeout", "killed", "client_gone", "sandbox_broken")
SENT = (None, 9, 15)
DIED = (None, 9, 15, 11)
FACTS: tuple[dict[str, Any], ...] = (
    {},
    {"oom": True},
    {"node_oom": True},
    {"disk_full": "sandbox"},
    {"disk_full": "node"},
    {"pids_hit": True},
)


def expected_verdict(
    cause: str | None, sent: int | None, died: int | None, code: int, facts: dict[str, Any]
) -> str:
    if cause is not None and (cause == "sandbox_broken" or died == SIGKILL):
        return cause
    if facts.get("oom") and (died or code):
        return "oom"
    if facts.get("node_oom") and (died or code):
        return "sandbox_broken"
    if died:
        return "killed" if sent == died else "signaled"
    if facts.get("disk_full") and code:
        return "disk_full" if facts["disk_full"] == "sandbox" else "sandbox_broken"
    return "pids_limit" if facts.get("pids_hit") else "exited"


def test_verdicts() -> None:
    # One test for all: 720 of one line each took longer to find and to report than to run.
    for cause, sent, died, code, facts in product(CAUSES, SENT, DIED, (0, 1), FACTS):
        verdict, _ = judge(
            cause=cause,
            cause_message=None,
            sent_signal=sent,
            facts={"signal": died, "exit_code": None if died else code, **facts},
        )
        assert verdict == expected_verdict(cause, sent, died, code, facts), (cause, sent, died, code, facts)


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
        (None, 9, {"signal": 9}, ("killed", "the caller sent signal 9")),
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
            ("sandbox_broken", "the node ran out of memory; this sandbox was within its limits"),
        ),
        (None, None, {"exit_code": 0, "node_oom": True}, ("exited", None)),
        (None, None, {"exit_code": 1, "disk_full": "sandbox"}, ("disk_full", "the sandbox's disk was full")),
        (None, None, {"exit_code": 0, "disk_full": "sandbox"}, ("exited", None)),
        (
            None,
            None,
            {"exit_code": 1, "disk_full": "node"},
            ("sandbox_broken", "the node's disk is full; this sandbox was within its limits"),
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


@pytest.mark.parametrize(
    ("facts", "ask"),
    [
        ({"exit_code": 0}, None),
        ({"exit_code": 1}, Question.DISK),
        ({"signal": 15}, None),
        ({"signal": 9}, Question.ALIVE),
        ({"signal": 9, "oom": True}, None),
        ({"signal": 9, "node_oom": True}, None),
        ({"failed": "oom", "exit_code": 126}, Question.ALIVE),
        ({"failed": "not_found", "exit_code": 127}, None),
    ],
)
def test_only_an_end_that_its_runner_cannot_explain_is_asked_for(
    facts: dict[str, Any], ask: Question | None
) -> None:
    assert question(facts) is ask
