"""The messages between the command and a process of callers of `pods/exec`: JSON lines over its stdin and stdout."""

from __future__ import annotations

import msgspec

from loadtests.load.baselines import Called
from loadtests.load.messages import Done


class ExecSetup(msgspec.Struct, kw_only=True):
    """The first line to a process: the API server, the pods that its callers share, and what they run."""

    kubeconfig: str
    context: str | None
    namespace: str
    pods: list[str]
    callers: int
    command: list[str]
    process: int
    processes: int


class ExecWindow(msgspec.Struct, kw_only=True):
    """A further line: calls begin from `start` on (monotonic clock), for so many seconds."""

    start: float
    seconds: float


class ExecDone(msgspec.Struct, kw_only=True):
    """The response: the calls, and the process's own CPU and delays."""

    made: list[Called]
    by: Done
