"""Asks the other gateways which instance has a sandbox that one of them has just made, before its record is there."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass

from ...data.dial import addresses_of, split_host_port
from ...data.pool import HttpPool, PoolError

_log = logging.getLogger(__name__)

_KEPT = 5.0  # seconds that the addresses behind the name are used again


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """`name`: `HOST:PORT` of all gateways together; `own_port`: where this one listens, itself among them."""

    name: str
    own_port: int
    timeout: float = 1.0  # seconds for all answers; the record of the claim is on its way meanwhile


class Peers:
    """What they say is where to look: whose sandbox it is, only the sidecar tells."""

    def __init__(self, settings: PeerSettings, *, pool: HttpPool, token: str) -> None:
        """`token`: of `Tokens.peer`. Raises ValueError for a name that is none."""
        self._host, self._port = split_host_port(settings.name)
        self._settings = settings
        self._pool = pool
        self._headers = [("authorization", f"Bearer {token}")]
        self._addresses: list[str] = []
        self._looked_at = -_KEPT
        self._looking = asyncio.Lock()  # a burst of questions is one lookup

    async def holder(self, sandbox_id: str) -> str | None:
        """The id of its instance; None when nobody knows, or none has answered in time."""
        asked: list[asyncio.Task[str | None]] = []
        try:
            async with asyncio.timeout(self._settings.timeout):
                addresses = await self._others()
                asked = [asyncio.create_task(self._ask(address, sandbox_id)) for address in addresses]
                for answer in asyncio.as_completed(asked):
                    if (instance_id := await answer) is not None:
                        return instance_id
        except TimeoutError:
            pass
        except OSError as error:
            _log.warning("the other gateways cannot be found by %s: %s", self._settings.name, error)
        finally:
            for task in asked:
                task.cancel()
        return None

    async def _ask(self, address: str, sandbox_id: str) -> str | None:
        target = f"/internal/sandboxes/{sandbox_id}/instance"
        try:
            answer = await self._pool.fetch(
                address, "GET", target, headers=self._headers, timeout=self._settings.timeout
            )
            told = answer.json() if answer.status == 200 else None
        except PoolError:
            return None
        instance_id = told.get("instance_id") if isinstance(told, dict) else None
        return instance_id if isinstance(instance_id, str) else None

    async def _others(self) -> list[str]:
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if now - self._looked_at >= _KEPT:
                self._looked_at = now
                found = await addresses_of(self._host, self._port)
                self._addresses = [address for address in found if not self._is_own(address)]
            return self._addresses

    def _is_own(self, address: str) -> bool:
        host, port = split_host_port(address)
        if port != self._settings.own_port:
            return False
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((host, 0))
            except OSError:
                return False  # an address of another machine
        return True
