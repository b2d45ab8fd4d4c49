"""Baseline of a service without sidecars: `pods/exec` through the official Kubernetes client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TypeAlias

from kubernetes import client as kubernetes
from kubernetes.stream import stream
from sandlot_contract.names import CONTAINER_SANDBOX

from loadtests.floors import COMMAND

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
    answer.run_forever(timeout=60)
    code = answer.returncode
    took = time.perf_counter() - begun
    answer.close()
    if code != 0:
        raise RuntimeError(f"pods/exec in {pod} ended with {code}")
    return took


def pods_exec_rate(
    make_core: MakeCore,
    *,
    namespace: str,
    pods: Sequence[str],
    callers: int,
    seconds: float,
    command: Sequence[str] = COMMAND,
) -> tuple[float, int]:
    """Return the commands per second of the threads over the pods, and the failures; late ends do not count."""
    # One client per thread: `stream` changes the client that it is called with.
    cores = [make_core() for _ in range(callers)]
    end = time.perf_counter() + seconds
    counts = [0] * callers
    failures: list[Exception] = []

    def loop(number: int, pod: str) -> None:
        while time.perf_counter() < end:
            try:
                pods_exec(cores[number], namespace=namespace, pod=pod, command=command)
            except (
                Exception
            ) as error:  # an overloaded kubelet refuses; the client reports this with many kinds of errors
                failures.append(error)
            else:
                counts[number] += time.perf_counter() <= end

    threads = [
        threading.Thread(target=loop, args=(number, pod))
        for number, pod in zip(range(callers), cycle(pods), strict=False)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not sum(counts):
        raise RuntimeError(f"no pods/exec ended in time, {len(failures)} failed")
    return sum(counts) / seconds, len(failures)
