"""Callers of `pods/exec` beside others: each call is counted once, with its caller, its time and how it failed, and none
stays when no more are wanted.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import psutil
import pytest
from kubernetes import client as kubernetes
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

from loadtests.cluster import baseline
from loadtests.cluster.baseline import PodsExecCallers, pods_exec, pods_exec_rate, rate_of
from loadtests.load import exec_callers as exec_callers_module
from loadtests.load import profile_files
from loadtests.load.baselines import Called, Callers, MakeSandbox
from loadtests.load.exec_callers import exec_callers
from loadtests.load.generators import GeneratorFailed
from loadtests.load.local_place import Local
from loadtests.load.trial import events_of, trial

LONG = 2.5  # seconds for calls of a moment: on a busy machine a thread may not have its turn for a second


class Execs:
    """An API server that ends each command at once: with 0 in pod `good`, and with 1 in any other. One in pod `held` ends
    when it is released.
    """

    def __init__(self) -> None:
        self.url = ""
        self.pods: list[str] = []
        self.began, self.released = Event(), Event()
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
                self.released.set()
                server.shutdown()
                thread.join()

    def _exec(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        pod = connection.request.path.split("/")[6]
        with self._lock:
            self.pods.append(pod)
        if pod == "held":
            self.began.set()
            self.released.wait()
        cause = {"causes": [{"reason": "ExitCode", "message": "1"}]}
        status = {"status": "Success"} if pod == "good" else {"status": "Failure", "details": cause}
        connection.send(b"\x03" + json.dumps(status).encode())

    def core(self) -> kubernetes.CoreV1Api:
        return kubernetes.CoreV1Api(kubernetes.ApiClient(kubernetes.Configuration(host=self.url)))

    def kubeconfig(self, folder: Path) -> str:
        """Write one for it, and return its path."""
        path = folder / "execs.kubeconfig"
        one = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "execs", "cluster": {"server": self.url}}],
            "users": [{"name": "execs", "user": {}}],
            "contexts": [{"name": "execs", "context": {"cluster": "execs", "user": "execs"}}],
            "current-context": "execs",
        }
        path.write_text(json.dumps(one))
        return str(path)


@pytest.fixture
def execs() -> Iterator[Execs]:
    made = Execs()
    with made.running():
        yield made


def test_callers_begin_together_and_each_call_is_told(execs: Execs) -> None:
    callers = PodsExecCallers(execs.core, namespace="boxes", pods=["good", "bad"], callers=4)
    start = time.monotonic() + 0.2
    called = callers.run(start=start, seconds=LONG)
    assert len(called) == len(execs.pods)
    assert {one.caller for one in called} == {0, 1, 2, 3}
    assert all(start <= one.began < start + LONG for one in called)
    assert all(one.began < one.ended for one in called)
    assert {one.caller for one in called if one.error} == {1, 3}, "every second caller has the bad pod"


def test_a_caller_waits_after_an_error(execs: Execs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "AFTER_ERROR", LONG)
    callers = PodsExecCallers(execs.core, namespace="boxes", pods=["bad"], callers=2)
    called = callers.run(start=time.monotonic(), seconds=LONG)
    assert 1 <= len(called) <= 2, "one call each at most, then a pause"
    assert all(one.error for one in called)


def test_callers_that_are_stopped_begin_no_call(execs: Execs) -> None:
    callers = PodsExecCallers(execs.core, namespace="boxes", pods=["good"], callers=2)
    callers.stop()
    assert callers.run(start=time.monotonic() + 30, seconds=30) == []
    assert execs.pods == []


def test_callers_that_are_left_in_a_call_are_an_error(execs: Execs) -> None:
    callers = PodsExecCallers(execs.core, namespace="boxes", pods=["held"], callers=2, limit=0.2)
    with pytest.raises(RuntimeError, match=r"2 callers of pods/exec are in a call 0\.2 s after"):
        callers.run(start=time.monotonic(), seconds=LONG)
    execs.released.set()


@pytest.mark.timeout(60)
def test_a_call_to_a_server_that_does_not_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "SOCKET_SECONDS", 0.2)
    silent = Execs()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        silent.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(kubernetes.ApiException, match="timed out"):
            pods_exec(silent.core(), namespace="boxes", pod="good")


def test_a_rate_has_the_times_of_what_succeeded_and_counts_what_failed(execs: Execs) -> None:
    found = pods_exec_rate(execs.core, namespace="boxes", pods=["good", "bad"], callers=2, seconds=LONG)
    assert len(found.times) == execs.pods.count("good") > 0
    assert found.failures == execs.pods.count("bad") > 0
    assert found.rate == pytest.approx(len(found.times) / LONG, abs=2 / LONG)


def test_a_rate_is_of_what_ended_in_time_and_tells_what_did_not() -> None:
    calls = [Called(0, 10, 11), Called(1, 10, 12), Called(0, 11, 16), Called(1, 12, 17, "ApiException")]
    found = rate_of(calls, start=10, seconds=5)
    assert (found.rate, found.failures, found.open) == (2 / 5, 1, 2)
    assert sorted(found.times) == [1, 2, 5]


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


async def test_processes_share_the_callers_and_tell_their_own_delays(
    execs: Execs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_callers_module, "A_PROCESS", 2)
    path = execs.kubeconfig(tmp_path)
    async with exec_callers(
        3, command=["true"], namespace="boxes", pods=["good"], kubeconfig=path, context=None
    ) as call:
        start = time.monotonic() + 0.1
        calls = await call(start, LONG)
    assert {one.caller for one in calls.made} == {0, 1, 2}
    assert [one.calls for one in calls.by] == [
        sum(one.caller % 2 == process for one in calls.made) for process in (0, 1)
    ]
    assert all(one.cpu > 0 and one.wall >= 0.9 and one.lags for one in calls.by)


async def test_no_caller_is_left_when_the_others_fail(execs: Execs, tmp_path: Path) -> None:
    path = execs.kubeconfig(tmp_path)

    async def fails() -> None:
        await asyncio.to_thread(execs.began.wait)
        raise ZeroDivisionError

    async def held(call: Callers) -> None:
        await call(time.monotonic(), 600.0)

    async def both() -> None:
        async with (
            exec_callers(
                2, command=["true"], namespace="boxes", pods=["held"], kubeconfig=path, context=None
            ) as call,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(held(call))
            group.create_task(fails())

    with pytest.raises(ExceptionGroup) as failed:
        await both()
    assert failed.group_contains(ZeroDivisionError)
    assert running("loadtests.load.exec_worker") == []


def running(module: str) -> list[psutil.Process]:
    """The processes below this one that run a module. One that has ended runs nothing, even before its parent waits for it."""
    found: list[psutil.Process] = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if module in process.cmdline():
                found.append(process)
    return found


async def test_a_kubeconfig_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    with pytest.raises(ExceptionGroup) as failed:
        async with exec_callers(
            1, command=["true"], namespace="boxes", pods=["good"], kubeconfig=path, context=None
        ):
            pass
    assert failed.group_contains(GeneratorFailed, match="Invalid kube-config file")


class BesideExecs(Local):
    """A local stack with an API server whose `pods/exec` ends at once."""

    def __init__(self, execs: Execs, folder: Path) -> None:
        super().__init__()
        self._kubeconfig = execs.kubeconfig(folder)

    def pods_exec(
        self, callers: int, *, command: Sequence[str], make: MakeSandbox
    ) -> AbstractAsyncContextManager[Callers]:
        return exec_callers(
            callers,
            command=command,
            namespace="boxes",
            pods=["good", "bad"],
            kubeconfig=self._kubeconfig,
            context=None,
        )


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
            "closed": {"callers": 2, "seconds": LONG},
            "sandbox": "kept",
            "pods_exec": 4,
            **command,
        },
    ]
    document = {"what": "a test", "phases": phases, "baseline": {"seconds": 0.1}}
    loaded = profile_files.parse(document, name="t", short=False, given={})
    async with BesideExecs(execs, tmp_path) as place:
        found = await trial(
            loaded, place=place, folder=tmp_path, seed=1, every=1.0, peers=False, tell=lambda _: None
        )
    together = found.summary["phases"]["together"]
    theirs, ours = together["kinds"]["pods_exec"], together["kinds"]["exec"]
    assert (theirs["ok"], theirs["count"]) == (execs.pods.count("good"), len(execs.pods))
    assert theirs["latency"]["p50"] > 0
    assert theirs["failed"] == execs.pods.count("bad")
    ended = [one for one in found.events if one.kind == "exec" and one.phase == "together"]
    in_time = sum(one.ended <= found.spans[1].begun + LONG for one in ended)
    assert (ours["rate"], ours["open"]) == (pytest.approx(in_time / LONG, rel=0.01), len(ended) - in_time)
    assert together["pods_exec"]["processes"] == 1
    assert together["pods_exec"]["cores"] > 0
    assert (together["calls"], together["infrastructure"]) == (ours["count"], 0)
    assert together["ledger"]["lost"] == 0
    spans = {kind: [one for one in found.events if one.kind == kind] for kind in ("pods_exec", "exec")}
    first, last = min(one.began for one in spans["exec"][1:]), max(one.ended for one in spans["exec"])
    assert any(first < one.began < last for one in spans["pods_exec"])
    assert "pods_exec" not in found.summary["phases"]["made"]["kinds"]
