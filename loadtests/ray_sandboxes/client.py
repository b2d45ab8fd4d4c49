"""Runs short rollouts (create, echo, delete) in Ray's sandboxes and prints their times. Runs in Ray's own Python.

`client.py IMAGE CALLERS SECONDS` prints one JSON object: for each way to have a sandbox the `times` in seconds of
the rollouts that ended within its window, each with its create, exec and delete.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import ray  # type: ignore[import-not-found]
from ray.experimental import sandbox  # type: ignore[import-not-found]

_COMMAND = ["sh", "-c", "echo hi"]
# An archive has no image configuration, and without PATH the container's first program is not found.
_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
# Writable and without a network, as the sandboxes that they are compared with.
_OPTIONS: dict[str, Any] = {"env": _ENV, "readonly": False, "timeout_seconds": 60.0}

Times = tuple[float, float, float]  # seconds of create, exec, delete


class _Caller(Protocol):
    def rollout(self) -> Times:
        """Run one rollout. Raises RuntimeError, and Ray's own errors."""
        ...


class _Actors:
    """Has `sandbox.create` start an actor, a process of Ray's, for each sandbox."""

    def __init__(self, image: str) -> None:
        self._image = image

    def rollout(self) -> Times:
        begun = time.perf_counter()
        # No share of a core, or only as many sandboxes as cores would exist at a time.
        box = sandbox.create(self._image, cpu=0, **_OPTIONS)
        ray.get(box.get_instance_id.remote())
        created = time.perf_counter()
        _check(ray.get(box.exec.remote(_COMMAND)))
        answered = time.perf_counter()
        ray.get(box.delete.remote())
        return created - begun, answered - created, time.perf_counter() - answered


class _Maker:
    """Makes sandboxes in its own process, an actor."""

    def __init__(self, image: str) -> None:
        self._image, self._runtime = image, sandbox.SandboxRuntime()

    def rollout(self) -> Times:
        begun = time.perf_counter()
        box = self._runtime.create(self._image, **_OPTIONS)
        created = time.perf_counter()
        _check(self._runtime.exec(box, _COMMAND))
        answered = time.perf_counter()
        self._runtime.delete(box)
        return created - begun, answered - created, time.perf_counter() - answered


class _Runtimes:
    """Has one actor with a `SandboxRuntime` for all its sandboxes."""

    def __init__(self, image: str) -> None:
        self._actor = ray.remote(num_cpus=0)(_Maker).remote(image)

    def rollout(self) -> Times:
        return ray.get(self._actor.rollout.remote())


def _check(result: Any) -> None:
    if result.stdout != "hi\n":
        raise RuntimeError(f"exit code {result.exit_code}: {result.stderr[-500:]}")


def _within(caller: _Caller, end: float) -> list[Times]:
    """Run rollouts one after the other and return those that end in time."""
    found: list[Times] = []
    while time.monotonic() < end:
        times = caller.rollout()
        if time.monotonic() <= end:
            found.append(times)
    return found


def _measure(callers: list[_Caller], *, seconds: float) -> list[Times]:
    with ThreadPoolExecutor(len(callers)) as threads:
        list(threads.map(lambda caller: caller.rollout(), callers))  # Ray starts its workers
        end = time.monotonic() + seconds
        found = list(threads.map(lambda caller: _within(caller, end), callers))
    return [times for each in found for times in each]


def main() -> None:
    image, callers, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    ray.init(
        _node_ip_address="127.0.0.1",
        include_dashboard=False,
        object_store_memory=100 << 20,  # rollouts put nothing in it
        log_to_driver=False,
    )
    sandbox.SandboxRuntime().pull_image(image)
    ways = {"runtime": _Runtimes, "actor": _Actors}
    found = {
        way: _measure([kind(image) for _ in range(callers)], seconds=seconds) for way, kind in ways.items()
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
