"""Asks the other gateways what no record says yet: which instance has a sandbox, which sandbox has a key."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from enum import Enum, auto
from urllib.parse import urlencode

import msgspec
from sandlot_contract.ids import InstanceId, SandboxId

from ...core.owners import KeyAnswer, KeyHolder, KeyQuestion
from ...data.dial import addresses_of, split_host_port
from ...data.pool import Answer, DialError, HttpPool, PoolError, UpstreamError

_log = logging.getLogger(__name__)

_KEPT = 5.0  # seconds that resolved addresses are cached
_LEFT_OUT = 2.0  # seconds without questions to a dead or silent gateway: each create would wait for it


class _No(Enum):
    """Why a gateway did not answer."""

    DEAD = auto()  # nothing listens there
    SILENT = auto()  # it may be alive


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """`name`: `HOST:PORT` that resolves to all gateways; `own_port`: where this gateway listens."""

    name: str
    own_port: int
    timeout: float = 1.0  # seconds for all answers; the claim record is being written meanwhile


class _Told(msgspec.Struct):
    holder: KeyHolder | None


class Peers:
    """The other gateways' answers are hints where to look; only the sidecar decides who owns it."""

    def __init__(self, settings: PeerSettings, *, pool: HttpPool, token: str) -> None:
        """`token` from `Tokens.peer`. Raises ValueError for an invalid name."""
        self._host, self._port = split_host_port(settings.name)
        self._settings = settings
        self._pool = pool
        self._headers = [("authorization", f"Bearer {token}")]
        self._addresses: list[str] = []
        self._looked_at = -_KEPT
        self._looking = asyncio.Lock()  # one lookup for a burst of questions
        self._one_left = False  # an address vanished: that gateway may have died
        self._left_out: dict[str, tuple[float, _No]] = {}  # address -> (until when, why)

    async def holder(self, sandbox_id: SandboxId) -> InstanceId | None:
        """Return the id of the sandbox's instance, or None if no gateway answers with one in time."""
        asked: list[asyncio.Task[InstanceId | None]] = []
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

    async def holder_of_key(self, question: KeyQuestion, *, look: Callable[[], Awaitable[None]]) -> KeyAnswer:
        """Ask all gateways who holds the key. `look` polls sidecars for the last claims of a gateway that died."""
        try:
            addresses = await self._others()
        except OSError as error:
            _log.warning("the other gateways cannot be found by %s: %s", self._settings.name, error)
            return KeyAnswer((), all_heard=False)
        if self._one_left:
            self._one_left = False
            await look()
        target = f"/internal/keys?{urlencode(asdict(question))}"
        told = await asyncio.gather(*(self._holder_at(address, target, look=look) for address in addresses))
        holders = tuple({one for one in told if isinstance(one, KeyHolder)})
        return KeyAnswer(holders, all_heard=_No.SILENT not in told)

    async def _holder_at(
        self, address: str, target: str, *, look: Callable[[], Awaitable[None]]
    ) -> KeyHolder | _No | None:
        now = asyncio.get_running_loop().time()
        until, why = self._left_out.get(address, (0.0, _No.DEAD))
        if now < until:
            return why
        told = await self._told_by(address, target)
        if isinstance(told, _No):
            if told is _No.DEAD and address not in self._left_out:
                await look()
            self._left_out[address] = (asyncio.get_running_loop().time() + _LEFT_OUT, told)
            return told
        self._left_out.pop(address, None)
        if told.status != 200:
            _log.error(
                "the gateway at %s answered with status %d; do the master keys differ?", address, told.status
            )
            return _No.SILENT
        try:
            return msgspec.json.decode(told.body, type=_Told).holder
        except msgspec.MsgspecError as error:
            _log.error("the answer of the gateway at %s cannot be read: %s", address, error)
            return _No.SILENT

    async def _told_by(self, address: str, target: str) -> Answer | _No:
        for _ in range(
            2
        ):  # a connection that was kept breaks when its other end dies: then a fresh one tells
            try:
                return await self._pool.fetch(
                    address, "GET", target, headers=self._headers, timeout=self._settings.timeout
                )
            except DialError as error:
                return _No.DEAD if error.refused else _No.SILENT
            except UpstreamError:
                continue
        return _No.SILENT

    async def _ask(self, address: str, sandbox_id: SandboxId) -> InstanceId | None:
        target = f"/internal/sandboxes/{sandbox_id}/instance"
        try:
            answer = await self._pool.fetch(
                address, "GET", target, headers=self._headers, timeout=self._settings.timeout
            )
            told = answer.json() if answer.status == 200 else None
        except PoolError:
            return None
        instance_id = told.get("instance_id") if isinstance(told, dict) else None
        return InstanceId(instance_id) if isinstance(instance_id, str) else None

    async def _others(self) -> list[str]:
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if now - self._looked_at >= _KEPT:
                self._looked_at = now
                found = await addresses_of(self._host, self._port)
                before, self._addresses = (
                    self._addresses,
                    [address for address in found if not self._is_own(address)],
                )
                self._one_left = self._one_left or not set(before) <= set(self._addresses)
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
