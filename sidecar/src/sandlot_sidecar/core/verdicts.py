"""Derives an op's verdict from its runner's report and the executor's answers."""

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
# Repeated as the last line of stderr: a client that knows no verdicts would see the exit code only.
REPEATED_ON_STDERR: frozenset[str] = frozenset(
    (*LIMITS_REACHED, CommandVerdict.START_FAILED, CommandVerdict.TIMEOUT, CommandVerdict.DISK_FULL)
)
RUNNER_LOST = "the runner of the command was lost"
INIT_LOST = "the sandbox's init process was lost"


class Question(enum.Enum):
    """Question to the executor about an op that ended for a reason its runner could not see."""

    DISK = enum.auto()  # it failed: is the disk of the sandbox or the node full?
    ALIVE = enum.auto()  # it was killed, or could not start: is the sandbox's init alive?
    COUNTERS = enum.auto()  # its runner was lost: did its cgroup reach a limit?


def question(facts: dict[str, Any]) -> Question | None:
    """Return the question that these facts leave open, for an op that we did not end."""
    if facts.get("failed"):
        # A fork in a dead PID namespace fails with `oom`.
        return Question.ALIVE if facts["failed"] == "oom" else None
    if facts.get("signal"):
        explained = facts["signal"] != SIGKILL or facts.get("oom") or facts.get("node_oom")
        return None if explained else Question.ALIVE
    return Question.DISK if facts.get("exit_code") else None


def exit_code(facts: dict[str, Any]) -> int | None:
    """Return the exit code as a shell reports it: 128+N for signal N, None if the op never ran."""
    if facts.get("signal"):
        return 128 + facts["signal"]
    return facts.get("exit_code")


def judge(
    *, cause: str | None, cause_message: str | None, sent_signal: int | None, facts: dict[str, Any]
) -> tuple[str, str | None]:
    """Return the verdict and its message.

    What we did to an op counts only if the op died of it: an op that ended by itself before our kill arrived
    has ended by itself.
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
        return CommandVerdict.SANDBOX_BROKEN, "the node ran out of memory; this sandbox was within its limits"
    if died:
        if sent_signal == died:
            return CommandVerdict.KILLED, f"the caller sent signal {died}"
        return CommandVerdict.SIGNALED, f"died of signal {died}"
    if facts.get("disk_full") == "sandbox" and failed:
        return CommandVerdict.DISK_FULL, "the sandbox's disk was full"
    if facts.get("disk_full") == "node" and failed:
        return CommandVerdict.SANDBOX_BROKEN, "the node's disk is full; this sandbox was within its limits"
    if facts.get("pids_hit"):
        return CommandVerdict.PIDS_LIMIT, LIMITS_REACHED[CommandVerdict.PIDS_LIMIT]
    return CommandVerdict.EXITED, None


def _judge_start(facts: dict[str, Any]) -> tuple[str, str | None]:
    """Return the verdict of a command that could not start."""
    failed, field, message = facts["failed"], facts.get("field"), facts.get("message")
    if facts.get("pids_hit"):
        return CommandVerdict.PIDS_LIMIT, message
    if failed in ("pids_limit", "oom"):
        return failed, message
    if facts.get("exit_code") in (126, 127):
        return CommandVerdict.EXITED, message
    return CommandVerdict.START_FAILED, f"{field}: {message}" if field else message
