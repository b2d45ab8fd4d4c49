"""The same command through `pods/exec` and the official Kubernetes client: the baselines of a cluster, and callers beside a
phase's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from kubernetes.client import ApiException
from sandlot import AsyncSandbox

from loadtests.cluster.baseline import pods_exec, rate_of
from loadtests.cluster.site import Pool, Site
from loadtests.load.baselines import Baselines, Callers, MakeSandbox, Taken
from loadtests.load.exec_callers import exec_callers
from loadtests.load.generators import GeneratorFailed
from loadtests.load.profile import Baseline
from loadtests.load.summary import of_generator

# So a rate is measured for three times as long as a call of all callers takes: 60 to 80 ms for each of them.
SECONDS_A_CALLER = 0.24
AHEAD = 0.1  # seconds from the word to the processes to the first call
CALLERS_A_POD = 50  # at most, as in the profile `callers`
PODS = 4  # at least, that the baseline's threads share


async def measure(taken: Baselines, plan: Baseline, *, site: Site, pool: Pool, make: MakeSandbox) -> None:
    """Measure `pods_exec`, one caller, and `pods_exec_threads`, a thread and a client for each of many."""
    boxes = await _boxes(plan.callers, make)
    try:
        pods = [await pool.pod_of(box) for box in boxes]
        await _one_caller(taken.setdefault("pods_exec", Taken()), plan, site=site, pod=pods[0])
        await _many_callers(taken.setdefault("pods_exec_threads", Taken()), plan, site=site, pods=pods)
    finally:
        await asyncio.gather(*(box.delete() for box in boxes))


@asynccontextmanager
async def beside(
    callers: int, *, command: Sequence[str], site: Site, pool: Pool, make: MakeSandbox
) -> AsyncIterator[Callers]:
    """Make the pods and processes of so many callers, and yield what lets them call. They end before their pods do."""
    boxes = await _boxes(callers, make)
    try:
        pods = [await pool.pod_of(box) for box in boxes]
        async with _callers(callers, command=command, site=site, pods=pods) as call:
            yield call
    finally:
        await asyncio.gather(*(box.delete() for box in boxes))


def _callers(
    callers: int, *, command: Sequence[str], site: Site, pods: list[str]
) -> AbstractAsyncContextManager[Callers]:
    stack = site.stack
    return exec_callers(
        callers,
        command=command,
        namespace=stack.sandboxes,
        pods=pods,
        kubeconfig=stack.kubeconfig,
        context=stack.context,
    )


async def _boxes(callers: int, make: MakeSandbox) -> list[AsyncSandbox]:
    return await asyncio.gather(*(make() for _ in range(max(PODS, callers // CALLERS_A_POD))))


async def _one_caller(found: Taken, plan: Baseline, *, site: Site, pod: str) -> None:
    stop = threading.Event()

    def loop() -> None:
        core = site.core()
        end = time.monotonic() + plan.seconds
        while not stop.is_set() and time.monotonic() < end:
            found.times.append(pods_exec(core, namespace=site.stack.sandboxes, pod=pod, command=plan.command))

    with _missing(found):
        try:
            await asyncio.to_thread(loop)
        finally:
            stop.set()


async def _many_callers(found: Taken, plan: Baseline, *, site: Site, pods: list[str]) -> None:
    seconds = max(plan.seconds, plan.callers * SECONDS_A_CALLER)
    with _missing(found):
        async with _callers(plan.callers, command=plan.command, site=site, pods=pods) as call:
            start = time.monotonic() + AHEAD
            calls = await call(start, seconds)
        many = rate_of(calls.made, start=start, seconds=seconds)
        found.rates.append(many.rate)
        found.failures += many.failures
        found.open += many.open
        found.times += many.times
        found.lagged += of_generator(calls.by)["reasons"]


@contextlib.contextmanager
def _missing(found: Taken) -> Iterator[None]:
    """Record a failed baseline as missing, and let the run continue."""
    try:
        yield
    except (RuntimeError, ApiException, GeneratorFailed) as error:
        found.missing = (str(error) or type(error).__name__)[:200]
