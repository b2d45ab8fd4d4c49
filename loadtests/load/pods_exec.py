"""The same command through `pods/exec` and the official Kubernetes client: the baselines of a cluster, and callers beside a
phase's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

from kubernetes.client import ApiException
from sandlot import AsyncSandbox

from loadtests.cluster.baseline import PodsExecCallers, pods_exec, pods_exec_rate
from loadtests.cluster.site import Pool, Site
from loadtests.load.baselines import Baselines, Called, Callers, MakeSandbox, Taken
from loadtests.load.profile import Baseline

MANY_SECONDS = 6.0  # with 64 waiting callers, a call may take seconds
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
    """Make the pods and clients of so many callers, and yield what lets them call."""
    boxes = await _boxes(callers, make)
    try:
        pods = [await pool.pod_of(box) for box in boxes]
        namespace = site.stack.sandboxes

        def prepared() -> PodsExecCallers:
            return PodsExecCallers(
                site.core, namespace=namespace, pods=pods, callers=callers, command=command
            )

        made = await asyncio.to_thread(prepared)

        async def call(start: float, seconds: float) -> list[Called]:
            return await asyncio.to_thread(made.run, start=start, seconds=seconds)

        yield call
    finally:
        await asyncio.gather(*(box.delete() for box in boxes))


async def _boxes(callers: int, make: MakeSandbox) -> list[AsyncSandbox]:
    return await asyncio.gather(*(make() for _ in range(max(PODS, callers // CALLERS_A_POD))))


async def _one_caller(found: Taken, plan: Baseline, *, site: Site, pod: str) -> None:
    def loop() -> None:
        core = site.core()
        end = time.monotonic() + plan.seconds
        while time.monotonic() < end:
            found.times.append(pods_exec(core, namespace=site.stack.sandboxes, pod=pod, command=plan.command))

    with _missing(found):
        await asyncio.to_thread(loop)


async def _many_callers(found: Taken, plan: Baseline, *, site: Site, pods: list[str]) -> None:
    with _missing(found):
        many = await asyncio.to_thread(
            pods_exec_rate,
            site.core,
            namespace=site.stack.sandboxes,
            pods=pods,
            callers=plan.callers,
            seconds=max(plan.seconds * 2, MANY_SECONDS),
            command=plan.command,
        )
        found.rates.append(many.rate)
        found.failures += many.failures
        found.times += many.times


@contextlib.contextmanager
def _missing(found: Taken) -> Iterator[None]:
    """Record a failed baseline as missing, and let the run continue."""
    try:
        yield
    except (RuntimeError, ApiException) as error:
        found.missing = (str(error) or type(error).__name__)[:200]
