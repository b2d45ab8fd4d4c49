"""Callers of `pods/exec` beside others: each call is counted once, with its caller, its time and how it failed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import pytest
from kubernetes import client as kubernetes
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

from loadtests.cluster.baseline import PodsExecCallers, pods_exec_rate
from loadtests.load import profile_files
from loadtests.load.baselines import Called, Callers, MakeSandbox
from loadtests.load.places import Local
from loadtests.load.trial import events_of, trial


class Execs:
    """An API server that ends each command at once: with 0 in pod `good`, and with 1 in any other."""

    def __init__(self) -> None:
        self.url = ""
        self.pods: list[str] = []
        self._lock = Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        with serve(
            self._exec, "127.0.0.1", 0, select_subprotocol=lambda *_: Subprotocol("v4.channel.k8s.io")
        ) as server:
            self.url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
            thread = Thread(target=server.serve_forever)
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()

    def _exec(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        pod = connection.request.path.split("/")[6]
        with self._lock:
            self.pods.append(pod)
        cause = {"causes": [{"reason": "ExitCode", "message": "1"}]}
        status = {"status": "Success"} if pod == "good" else {"status": "Failure", "details": cause}
        connection.send(b"\x03" + json.dumps(status).encode())

    def core(self) -> kubernetes.CoreV1Api:
        return kubernetes.CoreV1Api(kubernetes.ApiClient(kubernetes.Configuration(host=self.url)))


@pytest.fixture
def execs() -> Iterator[Execs]:
    made = Execs()
    with made.running():
        yield made


def test_callers_begin_together_and_each_call_is_told(execs: Execs) -> None:
    callers = PodsExecCallers(execs.core, namespace="boxes", pods=["good", "bad"], callers=4)
    start = time.monotonic() + 0.2
    called = callers.run(start=start, seconds=0.5)
    assert len(called) == len(execs.pods)
    assert {one.caller for one in called} == {0, 1, 2, 3}
    assert all(start <= one.began < start + 0.5 for one in called)
    assert all(one.began < one.ended for one in called)
    assert {one.caller for one in called if one.error} == {1, 3}, "every second caller has the bad pod"


def test_a_rate_has_the_times_of_what_succeeded_and_counts_what_failed(execs: Execs) -> None:
    found = pods_exec_rate(execs.core, namespace="boxes", pods=["good", "bad"], callers=2, seconds=0.5)
    assert len(found.times) == execs.pods.count("good") > 0
    assert found.failures == execs.pods.count("bad") > 0
    assert found.rate == pytest.approx(len(found.times) / 0.5, abs=2 / 0.5)


def test_a_rate_without_any_that_succeeded_is_an_error(execs: Execs) -> None:
    with pytest.raises(RuntimeError, match=r"no pods/exec ended in time, \d+ failed"):
        pods_exec_rate(execs.core, namespace="boxes", pods=["bad"], callers=1, seconds=0.2)


def test_calls_are_events_of_their_phase_that_count_for_no_call_of_its_own() -> None:
    good, failed = events_of(
        [Called(0, 10.0, 10.5), Called(1, 10.0, 70.0, "ApiException")], phase="together", zero=9.0
    )
    assert (good.phase, good.kind, good.outcome, good.latency) == ("together", "pods_exec", "ok", 0.5)
    assert (failed.number, failed.outcome, failed.verdict) == (1, "infrastructure", "ApiException")
    assert not good.is_call
    assert not failed.is_call


class BesideExecs(Local):
    """A local stack with an API server whose `pods/exec` ends at once."""

    def __init__(self, execs: Execs) -> None:
        super().__init__()
        self._execs = execs

    @asynccontextmanager
    async def pods_exec(
        self, callers: int, *, command: Sequence[str], make: MakeSandbox
    ) -> AsyncIterator[Callers]:
        made = PodsExecCallers(
            self._execs.core, namespace="boxes", pods=["good", "bad"], callers=callers, command=command
        )

        async def call(start: float, seconds: float) -> list[Called]:
            return await asyncio.to_thread(made.run, start=start, seconds=seconds)

        yield call


async def test_a_phase_has_both_kinds_of_callers_at_the_same_time(execs: Execs, tmp_path: Path) -> None:
    command = {"steps": [{"exec": "echo $NUMBER >> /tmp/seen"}], "ledger": "/tmp/seen"}
    phases: list[dict[str, Any]] = [
        {
            "name": "made",
            "closed": {"callers": 1, "tasks": 1},
            "sandbox": "keep",
            "steps": [{"exec": "true"}],
        },
        {
            "name": "together",
            "closed": {"callers": 2, "seconds": 1},
            "sandbox": "kept",
            "pods_exec": 4,
            **command,
        },
    ]
    document = {"what": "a test", "phases": phases, "baseline": {"seconds": 0.1}}
    loaded = profile_files.parse(document, name="t", short=False, given={})
    async with BesideExecs(execs) as place:
        found = await trial(
            loaded, place=place, folder=tmp_path, seed=1, every=1.0, peers=False, tell=lambda _: None
        )
    together = found.summary["phases"]["together"]
    theirs, ours = together["kinds"]["pods_exec"], together["kinds"]["exec"]
    assert (theirs["ok"], theirs["count"]) == (execs.pods.count("good"), len(execs.pods))
    assert theirs["latency"]["p50"] > 0
    assert (together["calls"], together["infrastructure"]) == (ours["count"], 0)
    assert together["ledger"]["lost"] == 0
    spans = {kind: [one for one in found.events if one.kind == kind] for kind in ("pods_exec", "exec")}
    first, last = min(one.began for one in spans["exec"][1:]), max(one.ended for one in spans["exec"])
    assert any(first < one.began < last for one in spans["pods_exec"])
    assert "pods_exec" not in found.summary["phases"]["made"]["kinds"]
