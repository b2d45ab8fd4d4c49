"""Baseline of a service without sidecars: `pods/exec` through the official Kubernetes client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TypeAlias

from kubernetes import client as kubernetes
from kubernetes.stream import stream
from sandlot_contract.names import CONTAINER_SANDBOX

from loadtests.floors import COMMAND
from loadtests.load.baselines import Called

# In quotes: the name makes the client import all models, 1 s of CPU, also in tests that only read the rows.
MakeCore: TypeAlias = "Callable[[], kubernetes.CoreV1Api]"


def pods_exec(
    core: kubernetes.CoreV1Api, *, namespace: str, pod: str, command: Sequence[str] = COMMAND
) -> float:
    """Run one command and return its seconds, from the call to its end."""
    begun = time.perf_counter()
    answer = stream(
        core.connect_get_namespaced_pod_exec,
        pod,
        namespace,
        container=CONTAINER_SANDBOX,
        command=list(command),
        stdin=False,
        stdout=True,
        stderr=True,
        tty=False,
        _preload_content=False,
    )
    try:
        answer.run_forever(timeout=60)
        code = answer.returncode
        took = time.perf_counter() - begun
    finally:
        answer.close()
        answer.sock.shutdown()  # `close` leaves the socket open where the server has closed first
    if code != 0:
        raise RuntimeError(f"pods/exec in {pod} ended with {code}")
    return took


class PodsExecCallers:
    """So many callers of `pods/exec`, a thread and a client each, over the pods in turn."""

    def __init__(
        self,
        make_core: MakeCore,
        *,
        namespace: str,
        pods: Sequence[str],
        callers: int,
        command: Sequence[str] = COMMAND,
    ) -> None:
        # One client per thread: `stream` changes the client that it is called with.
        self._cores = [make_core() for _ in range(callers)]
        self._namespace = namespace
        self._pods = pods
        self._command = command

    def run(self, *, start: float, seconds: float) -> list[Called]:
        """Call from `start` (monotonic clock) for so many seconds, and wait for the calls that are then in progress."""
        made: list[Called] = []  # appending is atomic

        def loop(number: int, pod: str) -> None:
            core = self._cores[number]
            time.sleep(max(0.0, start - time.monotonic()))
            while (began := time.monotonic()) < start + seconds:
                error = ""
                try:
                    pods_exec(core, namespace=self._namespace, pod=pod, command=self._command)
                except Exception as failure:  # an overloaded kubelet refuses; the client reports this with many kinds of errors
                    error = type(failure).__name__
                made.append(Called(number, began, time.monotonic(), error))

        threads = [
            threading.Thread(target=loop, args=(number, pod))
            for number, pod in zip(range(len(self._cores)), cycle(self._pods), strict=False)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return made


@dataclass(frozen=True, slots=True)
class Rate:
    """Commands a second of which late ends do not count, the failures, and the seconds of each that succeeded."""

    rate: float
    failures: int
    times: list[float]


def pods_exec_rate(
    make_core: MakeCore,
    *,
    namespace: str,
    pods: Sequence[str],
    callers: int,
    seconds: float,
    command: Sequence[str] = COMMAND,
) -> Rate:
    """Measure so many callers for so many seconds. Raises RuntimeError if no command ends in time."""
    made = PodsExecCallers(make_core, namespace=namespace, pods=pods, callers=callers, command=command)
    start = time.monotonic()
    calls = made.run(start=start, seconds=seconds)
    good = [call for call in calls if not call.error]
    in_time = sum(call.ended <= start + seconds for call in good)
    if not in_time:
        raise RuntimeError(f"no pods/exec ended in time, {len(calls) - len(good)} failed")
    return Rate(in_time / seconds, len(calls) - len(good), [call.ended - call.began for call in good])
