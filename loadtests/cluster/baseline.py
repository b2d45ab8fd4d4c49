"""Baseline of a service without sidecars: `pods/exec` through the official Kubernetes client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, TypeAlias

from kubernetes import client as kubernetes
from kubernetes.stream import stream, ws_client
from sandlot_contract.names import CONTAINER_SANDBOX
from websocket import WebSocket

from loadtests.floors import COMMAND
from loadtests.load.baselines import Called

# In quotes: the name makes the client import all models, 1 s of CPU, also in tests that only read the rows.
MakeCore: TypeAlias = "Callable[[], kubernetes.CoreV1Api]"
SOCKET_SECONDS = 30.0  # of a connect, of an upgrade, and of each read
COMMAND_SECONDS = 60.0  # of a command once its connection is open
AFTER_ERROR = (
    1.0  # seconds that a caller waits then: a refusal takes no time, and would be asked for again and again
)
# After the last call may begin, until all have ended: a connect, TLS, an upgrade, the command and its close.
LIMIT_SECONDS = 4 * SOCKET_SECONDS + COMMAND_SECONDS


class _LimitedWebSocket(WebSocket):
    """The client gives its connections no timeout, so one to a server that does not answer would stay for ever."""

    def connect(self, url: str, **options: Any) -> None:
        super().connect(url, **{"timeout": SOCKET_SECONDS, **options})


ws_client.WebSocket = _LimitedWebSocket  # type: ignore[misc]


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
        answer.run_forever(timeout=COMMAND_SECONDS)
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
        limit: float = LIMIT_SECONDS,
    ) -> None:
        """`limit`: seconds from the last moment at which a call may begin until all must have ended."""
        # One client per thread: `stream` changes the client that it is called with.
        self._cores = [make_core() for _ in range(callers)]
        self._namespace = namespace
        self._pods = pods
        self._command = command
        self._limit = limit
        self._stop = threading.Event()

    def stop(self) -> None:
        """Let no call begin any more."""
        self._stop.set()

    def run(self, *, start: float, seconds: float) -> list[Called]:
        """Call from `start` (monotonic clock) for so many seconds, and wait for the calls that are then in progress.

        Raises RuntimeError if some do not end within the limit.
        """
        made: list[Called] = []  # appending is atomic

        def loop(number: int, pod: str) -> None:
            core = self._cores[number]
            self._stop.wait(max(0.0, start - time.monotonic()))
            while not self._stop.is_set() and (began := time.monotonic()) < start + seconds:
                error = ""
                try:
                    pods_exec(core, namespace=self._namespace, pod=pod, command=self._command)
                except Exception as failure:  # an overloaded kubelet refuses; the client reports this with many kinds of errors
                    error = type(failure).__name__
                made.append(Called(number, began, time.monotonic(), error))
                if error:
                    self._stop.wait(AFTER_ERROR)

        threads = [
            # A daemon: one that is left in a call must not keep its process.
            threading.Thread(target=loop, args=(number, pod), daemon=True)
            for number, pod in zip(range(len(self._cores)), cycle(self._pods), strict=False)
        ]
        for thread in threads:
            thread.start()
        last = start + seconds + self._limit
        for thread in threads:
            thread.join(max(0.0, last - time.monotonic()))
        if left := sum(thread.is_alive() for thread in threads):
            raise RuntimeError(
                f"{left} callers of pods/exec are in a call {self._limit:g} s after the last began"
            )
        return made


@dataclass(frozen=True, slots=True)
class Rate:
    """Commands a second, the failures, and the seconds of each that succeeded.

    The rate is of those that ended in time ÷ the seconds in which calls might begin; `open` ones ended later.
    """

    rate: float
    failures: int
    open: int
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
    """Measure so many callers in this process for so many seconds. Raises RuntimeError if no command ends in time."""
    made = PodsExecCallers(make_core, namespace=namespace, pods=pods, callers=callers, command=command)
    start = time.monotonic()
    return rate_of(made.run(start=start, seconds=seconds), start=start, seconds=seconds)


def rate_of(calls: Sequence[Called], *, start: float, seconds: float) -> Rate:
    """Return the rate of calls that began in these seconds. Raises RuntimeError if none ended well in time."""
    end = start + seconds
    good = [call for call in calls if not call.error]
    in_time = sum(call.ended <= end for call in good)
    if not in_time:
        raise RuntimeError(f"no pods/exec ended in time, {len(calls) - len(good)} failed")
    late = sum(call.ended > end for call in calls)
    return Rate(in_time / seconds, len(calls) - len(good), late, [call.ended - call.began for call in good])
