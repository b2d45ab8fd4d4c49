"""Cold starts of sandboxes against bare pods of the same image: one after the other, and 20 at once."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from kubernetes import client as kubernetes
from kubernetes import watch
from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median

from loadtests.cluster.site import Site
from loadtests.cluster.start_rows import first_output
from loadtests.reading import Reading
from tests.kubernetes.stack import IMAGE

IN_TURN = 6
AT_ONCE = 20
_NAMESPACE = "default"


async def cold(site: Site, runtime: str) -> dict[str, Reading]:
    """Measure the rows `cold_create_RUNTIME` and `cold_at_once_RUNTIME`: create to first output ÷ a bare pod's start.

    A bare pod is one container that sleeps, made through the API server and watched until it is ready. Bare pods and
    sandboxes take turns, never at the same time.
    """
    ours: list[float] = []
    bare: list[float] = []
    cores = [site.core() for _ in range(AT_ONCE)]
    async with site.pool(runtime, size=0, reuse="never") as pool:
        try:
            for _ in range(IN_TURN):
                ours.append((await first_output(pool))[1])
                await site.empty()
                bare.append(await asyncio.to_thread(_start_bare, cores[0], runtime))
                await asyncio.to_thread(_end_bare, cores[0])
            begun = time.perf_counter()
            each = await asyncio.gather(*(first_output(pool) for _ in range(AT_ONCE)))
            whole = time.perf_counter() - begun
            await site.empty()
            with ThreadPoolExecutor(AT_ONCE) as threads:
                loop = asyncio.get_running_loop()
                starts = [loop.run_in_executor(threads, _start_bare, core, runtime) for core in cores]
                floor = max(await asyncio.gather(*starts))
        finally:
            await asyncio.to_thread(_end_bare, cores[0])
    alone = {"create to first output p50": as_time(median(ours)), "bare pod p50": as_time(median(bare))}
    together = {
        "last of ours": as_time(whole),
        "last bare pod": as_time(floor),
        "median of ours": as_time(median([waited for _, waited in each])),
    }
    return {
        f"cold_create_{runtime}": Reading(value=median(ours) / median(bare), parts=alone),
        f"cold_at_once_{runtime}": Reading(value=whole / floor, parts=together),
    }


def _start_bare(core: kubernetes.CoreV1Api, runtime: str) -> float:
    """Start a bare pod and return the seconds until it is ready."""
    name = f"bench-bare-{uuid.uuid4().hex[:10]}"
    container = kubernetes.V1Container(
        name="main", image=IMAGE, image_pull_policy="Never", command=["sleep", "3600"]
    )
    pod = kubernetes.V1Pod(
        metadata=kubernetes.V1ObjectMeta(name=name, labels={"bench": "bare"}),
        spec=kubernetes.V1PodSpec(
            containers=[container],
            runtime_class_name=None if runtime == "runc" else runtime,
            termination_grace_period_seconds=0,
            restart_policy="Never",
        ),
    )
    begun = time.perf_counter()
    core.create_namespaced_pod(_NAMESPACE, pod)
    seen = watch.Watch()
    selector = f"metadata.name={name}"
    stream = seen.stream(core.list_namespaced_pod, _NAMESPACE, field_selector=selector, timeout_seconds=300)
    for event in cast(Iterator[dict[str, Any]], stream):
        conditions = event["object"].status.conditions or []
        if any(each.type == "Ready" and each.status == "True" for each in conditions):
            seen.stop()
            return time.perf_counter() - begun
    raise RuntimeError(f"the bare pod {name} was not ready in 300 s")


def _end_bare(core: kubernetes.CoreV1Api) -> None:
    """Delete all bare pods and wait until they are gone."""
    core.delete_collection_namespaced_pod(_NAMESPACE, label_selector="bench=bare")
    deadline = time.monotonic() + 240
    while core.list_namespaced_pod(_NAMESPACE, label_selector="bench=bare").items:
        if time.monotonic() > deadline:
            raise TimeoutError("bare pods do not end")
        time.sleep(0.2)
