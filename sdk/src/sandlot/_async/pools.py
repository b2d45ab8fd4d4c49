"""Warm pools: sandboxes that the server keeps ready, so that a create takes milliseconds."""

from __future__ import annotations

from urllib.parse import quote

from sandlot._async.client import AsyncClient, default_client
from sandlot._protocol import documents
from sandlot.models import PoolInfo
from sandlot.units import parse_size

GIB = 1 << 30


class AsyncPools:
    """The server's warm pools. A create takes from the one whose image and resources are the same."""

    def __init__(self, *, client: AsyncClient | None = None) -> None:
        self._client = client

    async def list(self) -> list[PoolInfo]:
        """All pools, with how many sandboxes are ready in each."""
        document = await (await self._connected()).call("GET", "/pools")
        return [documents.pool_info(item) for item in document.get("pools") or ()]

    async def set(
        self,
        name: str,
        *,
        size: int,
        image: str = "host",
        cpu: float | None = None,
        memory: int | str | None = None,
        disk: int | str | None = None,
        pids: int | None = None,
    ) -> PoolInfo:
        """Makes the pool or changes it. Sizes of memory and disk are bytes or strings such as `"1GiB"`."""
        body: dict[str, object] = {"image": image, "size": size}
        if cpu is not None:
            body["cpu_cores"] = cpu
        if memory is not None:
            body["memory_gb"] = parse_size(memory, name="memory") / GIB
        if disk is not None:
            body["disk_size_gb"] = parse_size(disk, name="disk") / GIB
        if pids is not None:
            body["pids"] = pids
        client = await self._connected()
        return documents.pool_info(await client.call("PUT", f"/pools/{quote(name, safe='')}", body=body))

    async def delete(self, name: str) -> None:
        """Deletes the pool and its unused sandboxes. Raises NotFound."""
        await (await self._connected()).call("DELETE", f"/pools/{quote(name, safe='')}")

    async def _connected(self) -> AsyncClient:
        if self._client is None:
            self._client = await default_client()
        return self._client
