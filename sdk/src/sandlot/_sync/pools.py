# This file is auto-generated from sdk/src/sandlot/_async/pools.py by tools/async_to_sync.py: do not change it.
"""Warm pools: sandboxes that the server keeps ready, so that a create takes milliseconds."""

from __future__ import annotations

from collections.abc import Callable

from sandlot._protocol import checks, documents
from sandlot._sync.client import Client, default_client
from sandlot._tasks_sync import now, sleep
from sandlot.errors import NotFound, SandboxLost, WaitTimeout
from sandlot.models import PoolInfo
from sandlot.units import parse_size

GIB = 1 << 30
LOOK_SECONDS = 0.2
GIVE_UP = 3  # consecutive failed starts: the image or the machine is at fault


class Pools:
    """The server's warm pools. A create claims from the pool with the same image and resources."""

    def __init__(self, *, client: Client | None = None) -> None:
        self._client = client

    def list(self) -> list[PoolInfo]:
        """Return the pools that this key may use, with the number of ready sandboxes in each."""
        document = (self._connected()).call("GET", "/pools")
        return [documents.pool_info(item) for item in document.get("pools") or ()]

    def set(
        self,
        name: str,
        *,
        size: int | None = None,
        image: str | None = None,
        cpu: float | None = None,
        memory: int | str | None = None,
        disk: int | str | None = None,
        pids: int | None = None,
        gpu_count: int | None = None,
        gpu_type: str | None = None,
        runtime_class: str | None = None,
        owner: str | None = None,
        reuse: str | None = None,
        max_uses: int | None = None,
        max_age: float | None = None,
    ) -> PoolInfo:
        """Create or update a pool: omitted values stay unchanged; a new pool gets the server's defaults.

        A new pool needs `size`; on an autoscaled pool, `size` ends the autoscaling. `memory` and `disk` are bytes
        or strings such as `"1GiB"`. `gpu_type` "" is any.

        `runtime_class` is a RuntimeClass of the cluster that the server's operator allows, else BadRequest; "" is the
        chart's own. A pool that has one serves only creates that name the pool.

        A pool belongs to the key's tenant; a key with the role `operate` makes a shared pool, or one of the tenant
        that `owner` names ("": shared). Raises AuthError when the key may not change the pool, and BadRequest for a new
        one if the tenant has 64, unless the key has that role.

        `reuse` is "tenant" or "never"; `max_uses` and `max_age` (seconds) bound it. `PoolReuse` has their meaning and
        the defaults of a new pool.
        """
        body: dict[str, object] = {}
        if size is not None:
            body["size"] = size
        if image is not None:
            body["image"] = image
        if cpu is not None:
            body["cpu_cores"] = cpu
        if memory is not None:
            body["memory_gb"] = parse_size(memory, name="memory") / GIB
        if disk is not None:
            body["disk_size_gb"] = parse_size(disk, name="disk") / GIB
        if pids is not None:
            body["pids"] = pids
        if gpu_count is not None:
            body["gpu_count"] = gpu_count
        if gpu_type is not None:
            body["gpu_type"] = gpu_type
        if runtime_class is not None:
            body["runtime_class"] = runtime_class
        if owner is not None:
            body["owner"] = owner
        said = {"policy": reuse, "max_uses": max_uses, "max_age": max_age}
        if reuses := {field: value for field, value in said.items() if value is not None}:
            body["reuse"] = reuses
        client = self._connected()
        return documents.pool_info(client.call("PUT", _path(name), body=body))

    def delete(self, name: str) -> None:
        """Delete the pool and its unused sandboxes. Raises NotFound, or AuthError when the key may not."""
        (self._connected()).call("DELETE", _path(name))

    def wait_warm(
        self,
        name: str,
        *,
        timeout: float = 300.0,
        progress: Callable[[PoolInfo], None] | None = None,
    ) -> PoolInfo:
        """Wait until the pool has its full size; `progress` is called after each poll.

        Raises NotFound, WaitTimeout after `timeout` seconds, SandboxLost when its sandboxes cannot be started.
        """
        checks.seconds(timeout, name="timeout")
        deadline = now() + timeout
        while True:
            pool = next((pool for pool in self.list() if pool.name == name), None)
            if pool is None:
                raise NotFound(f"no pool {name!r} is visible to this key: create it with set", status=404)
            if progress is not None:
                progress(pool)
            if pool.warm:
                return pool
            if pool.failures >= GIVE_UP:
                raise SandboxLost(f"pool {name} cannot be filled: {pool.message}", verdict="start_failed")
            if now() + LOOK_SECONDS > deadline:
                reason = f": {pool.message}" if pool.message else ""
                raise WaitTimeout(
                    f"pool {name} has {pool.ready} of {pool.size} ready after {timeout:g} s{reason}"
                )
            sleep(LOOK_SECONDS)

    def _connected(self) -> Client:
        if self._client is None:
            self._client = default_client()
        return self._client


def _path(name: str) -> str:
    return f"/pools/{checks.path_part(name, name='name')}"
