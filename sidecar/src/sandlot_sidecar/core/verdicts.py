"""How an op has ended: what its runner saw, what is asked where that does not tell why, and the verdict."""

from __future__ import annotations

import enum

from sandlot_contract.verdicts import CommandVerdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SIGKILL = 9
LIMITS_REACHED: dict[str, str] = {
    CommandVerdict.OOM: "the memory limit was reached",
    CommandVerdict.PIDS_LIMIT: "the process limit was reached",
}
RUNNER_LOST = "the process that ran the command was lost"
INIT_LOST = "the sandbox's first process was lost"


class Ask(enum.Enum):
    """What the executor is asked of an op that has ended by itself, for a reason that its runner could not see."""

    DISK = enum.auto()  # it failed: whose disk is full, if any is
    ALIVE = enum.auto()  # it was killed, or could not be started: does the sandbox's init live
    COUNTERS = enum.auto()  # its runner was lost: has its group reached a limit


def question(facts: dict[str, Any]) -> Ask | None:
    """Of one that ended with these facts, which nobody here has ended."""
    if facts.get("failed"):
        return (
            Ask.ALIVE if facts["failed"] == "oom" else None
        )  # what a fork in a dead PID namespace fails with
    if facts.get("signal"):
        explained = facts["signal"] != SIGKILL or facts.get("oom") or facts.get("node_oom")
        return None if explained else Ask.ALIVE
    return Ask.DISK if facts.get("exit_code") else None


def exit_code(facts: dict[str, Any]) -> int | None:
    """As a shell says it: 128+N for signal N; None when the op never ran."""
    if facts.get("signal"):
        return 128 + facts["signal"]
    return facts.get("exit_code")


def judge(
    *, cause: str | None, cause_message: str | None, sent_signal: int | None, facts: dict[str, Any]
) -> tuple[str, str | None]:
    """The verdict and its message.

    What we did to an op counts only when the op really died of it: one that ended by itself while our kill was
    on its way has ended by itself.
    """
    died, code = facts.get("signal"), facts.get("exit_code")
    failed = bool(died) or code != 0
    if not facts:
        return cause or CommandVerdict.SANDBOX_BROKEN, cause_message
    if facts.get("failed"):
        return _judge_start(facts)
    if cause == CommandVerdict.SANDBOX_BROKEN or (cause is not None and died == SIGKILL):
        return cause, cause_message
    if facts.get("oom") and failed:
        return CommandVerdict.OOM, LIMITS_REACHED[CommandVerdict.OOM]
    if facts.get("node_oom") and failed:
        return CommandVerdict.SANDBOX_BROKEN, "the node is out of memory, by no doing of this sandbox"
    if died:
        if sent_signal == died:
            return CommandVerdict.KILLED, f"signal {died} was asked for"
        return CommandVerdict.SIGNALED, f"died of signal {died}"
    if facts.get("disk_full") == "sandbox" and failed:
        return CommandVerdict.DISK_FULL, "the sandbox's disk was full"
    if facts.get("disk_full") == "node" and failed:
        return CommandVerdict.SANDBOX_BROKEN, "the disk of the node is full, by no doing of this sandbox"
    if facts.get("pids_hit"):
        return CommandVerdict.PIDS_LIMIT, LIMITS_REACHED[CommandVerdict.PIDS_LIMIT]
    return CommandVerdict.EXITED, None


def _judge_start(facts: dict[str, Any]) -> tuple[str, str | None]:
    """The verdict of a command that could not be started."""
    failed, field, message = facts["failed"], facts.get("field"), facts.get("message")
    if facts.get("pids_hit"):
        return CommandVerdict.PIDS_LIMIT, message
    if failed in ("pids_limit", "oom"):
        return failed, message
    if facts.get("exit_code") in (126, 127):
        return CommandVerdict.EXITED, message
    return CommandVerdict.START_FAILED, f"{field}: {message}" if field else message
