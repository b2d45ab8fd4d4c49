"""Asks the other gateways what no record says yet: which instance has a sandbox, which sandbox has a key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TypeVar
from urllib.parse import urlencode

import msgspec
from sandlot_contract.ids import InstanceId, SandboxId

from sandlot_gateway.core.bad_json import NOT_JSON

from ...core.gateways import PeerEvents
from ...core.owners import KeyAnswer, KeyHolder, KeyQuestion, RecordedEnd
from ...core.run_tally import RunCounts
from ...core.runs import RunId
from ...credentials import KEYS_PATH, NEWS_PATH
from ...data.dial import addresses_of, split_host_port
from ...data.pool import Answer, HttpPool
from ...tasks import Tasks
from .own_address import is_own
from .peer_calls import Missing, PeerCalls
from .search import Look

_log = logging.getLogger(__name__)

_KEPT = 5.0  # seconds that resolved addresses are cached
_RETRIED = 1.0  # seconds after a look-up without a result: each question would wait for one of its own


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """`name`: `HOST:PORT` that resolves to all gateways; `own_host` and `own_port`: where this gateway listens."""

    name: str
    own_port: int
    own_host: str = "0.0.0.0"  # or one address of several of this machine
    max_body: int = 2 << 20  # bytes of a request that they accept
    timeout: float = 1.0  # seconds for all answers; the claim record is being written meanwhile
    searched: float = 1.0  # seconds that a question of keys waits for the last claims of dead ones
    left_out: float = 2.0  # seconds without questions of keys after one that got no answer
    # Seconds for DNS, if the API server can be asked instead: both within a question's time.
    resolve: float = 0.5


class _Told(msgspec.Struct):
    holder: KeyHolder | None


class _Claims(msgspec.Struct):
    instances: dict[SandboxId, InstanceId]


class _Place(msgspec.Struct):
    instance_id: InstanceId | None = None
    end: RecordedEnd | None = None
    pending: bool = False


_T = TypeVar("_T")


def _read(answer: Answer, kind: type[_T], *, address: str) -> _T | None:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except NOT_JSON as error:
        _log.error("the answer of the gateway at %s cannot be read: %s", address, error)
        return None


Whereabouts = InstanceId | RecordedEnd | Missing


class Peers:
    """The other gateways' answers are hints where to look; only the sidecar decides who owns it."""

    def __init__(
        self,
        settings: PeerSettings,
        *,
        pool: HttpPool,
        token: Callable[[], str],
        endpoints: Callable[[], Awaitable[list[str]]] | None = None,
    ) -> None:
        """`token` from `Tokens.peer`; `endpoints`: reads all addresses where DNS fails, or raises OSError.

        Raises ValueError for an invalid name.
        """
        self._endpoints = endpoints
        self._host, self._port = split_host_port(settings.name)
        self._settings = settings
        self._addresses: list[str] = []
        self._all_known = False  # whether the last look-up succeeded; else there may be more of them
        self._look_again_at = 0.0  # on the loop's clock
        self._looking: asyncio.Task[None] | None = None  # one look-up for a burst of questions
        self._tasks = Tasks()
        self._calls = PeerCalls(
            pool=pool,
            token=token,
            timeout=settings.timeout,
            searched=settings.searched,
            left_out=settings.left_out,
            tasks=self._tasks,
        )
        self.is_searching = self._calls.is_searching

    async def close(self) -> None:
        await self._tasks.close()

    async def tell(self, body: bytes, *, told: Callable[[], None]) -> None:
        """Send news to all other gateways, without retries, and call `told` once those that answer have them.

        A gateway whose last call got no answer gets them as well, but a caller that waits for `told` would pay for it.
        """
        addresses, _ = await self._others()
        late = [address for address in addresses if self._calls.is_late(address)]
        async with asyncio.TaskGroup() as telling:
            for address in late:
                telling.create_task(self._tell(address, body))
            await asyncio.gather(*(self._tell(address, body) for address in addresses if address not in late))
            told()

    async def _tell(self, address: str, body: bytes) -> None:
        answer = await self._calls.tell(address, NEWS_PATH, body)
        if isinstance(answer, Missing):
            _log.info("the gateway at %s did not get the news: it is %s", address, answer.name.lower())
        elif answer.status != 204:
            _log.error("the gateway at %s rejected the news with status %d", address, answer.status)

    async def whereabouts(self, sandbox_id: SandboxId) -> Whereabouts:
        """Return the first gateway's answer that says where the sandbox is or how it ended, if one does."""
        return await self._first(sandbox_id, lambda found: not isinstance(found, Missing))

    async def young_claims(self, tenant: str) -> dict[SandboxId, InstanceId]:
        """Return the instances of the tenant's sandboxes that the others know and that are new, as far as they answer."""
        target = f"/internal/claims?{urlencode({'tenant': tenant})}"
        addresses, _ = await self._others()
        answers = await asyncio.gather(*(self._calls.ask(address, target) for address in addresses))
        found: dict[SandboxId, InstanceId] = {}
        for address, answer in zip(addresses, answers, strict=True):
            claims = None if isinstance(answer, Missing) else _read(answer, _Claims, address=address)
            if claims is not None:
                found |= claims.instances
        return found

    async def events(
        self, tenant: str, *, after: Mapping[str, str], since: Callable[[str], float]
    ) -> dict[str, PeerEvents | None]:
        """Ask all gateways for a tenant's events, see `OtherGateways.events`."""
        addresses, _ = await self._others()
        answers = await asyncio.gather(
            *(self._events_of(address, tenant, after.get(address), since(address)) for address in addresses)
        )
        return dict(zip(addresses, answers, strict=True))

    async def _events_of(
        self, address: str, tenant: str, after: str | None, since: float
    ) -> PeerEvents | None:
        query = {"tenant": tenant, "since": since, **({} if after is None else {"after": after})}
        answer = await self._calls.ask(address, f"/internal/events?{urlencode(query)}")
        if isinstance(answer, Missing) or answer.status != 200:  # one of an earlier version has no such route
            return None
        return _read(answer, PeerEvents, address=address)

    async def run_counts(self, tenant: str, run_id: RunId) -> list[RunCounts | None]:
        """Ask all gateways for what they counted of a run, see `OtherGateways.run_counts`."""
        try:
            async with asyncio.timeout(self._settings.timeout):
                addresses, all_known = await self._others()
        except TimeoutError:
            return [None]
        target = f"/internal/runs/{run_id}/counts?{urlencode({'tenant': tenant})}"
        answers = await asyncio.gather(*(self._calls.ask(address, target) for address in addresses))
        counts = [
            None
            if isinstance(answer, Missing)
            or answer.status != 200  # one of an earlier version has no such route
            else _read(answer, RunCounts, address=address)
            for address, answer in zip(addresses, answers, strict=True)
        ]
        return counts if all_known else [*counts, None]  # there may be more of them

    async def end_of(self, sandbox_id: SandboxId) -> RecordedEnd | None:
        """Return the sandbox's end, or None if no gateway knows one in time; others may still believe that it runs."""
        found = await self._first(sandbox_id, lambda found: isinstance(found, RecordedEnd))
        return found if isinstance(found, RecordedEnd) else None

    async def _first(self, sandbox_id: SandboxId, suits: Callable[[Whereabouts], bool]) -> Whereabouts:
        try:
            async with asyncio.timeout(self._settings.timeout):
                addresses, all_known = await self._others()
        except TimeoutError:
            return Missing.SILENT
        missing = [Missing.DENIED if all_known else Missing.SILENT]
        asked = [asyncio.create_task(self._ask(address, sandbox_id)) for address in addresses]
        try:
            for answer in asyncio.as_completed(asked):
                if suits(found := await answer):
                    return found
                if isinstance(found, Missing):
                    missing.append(found)
        finally:
            for task in asked:
                task.cancel()
        return max(missing, key=lambda one: one.value)

    async def holder_of_key(self, question: KeyQuestion, *, look: Look) -> KeyAnswer:
        """Ask all gateways who holds the key. `look` polls sidecars for what a gateway that died had claimed last."""
        addresses, all_known = await self._others()
        target = f"{KEYS_PATH}?{urlencode(asdict(question))}"
        asked = asyncio.gather(*(self._holder_at(address, target, look=look) for address in addresses))
        gone_are_searched, told = await asyncio.gather(self._calls.gone_are_searched(look), asked)
        holders = tuple({one for one in told if isinstance(one, KeyHolder)})
        searching = Missing.SOUGHT in told or not gone_are_searched
        all_heard = all_known and not searching and not {Missing.SILENT, Missing.RECOVERING} & {*told}
        return KeyAnswer(holders, all_heard=all_heard, searching=searching)

    async def _holder_at(self, address: str, target: str, *, look: Look) -> KeyHolder | Missing | None:
        told = await self._holder_told(address, target)
        if isinstance(told, KeyHolder):
            return told
        may_have_claimed_before = told is Missing.DEAD or told is Missing.RECOVERING
        is_searched = self._calls.is_searched if may_have_claimed_before else self._calls.left_is_searched
        return told if await is_searched(address, look) else Missing.SOUGHT

    async def _holder_told(self, address: str, target: str) -> KeyHolder | Missing | None:
        told = await self._calls.ask_for_key(address, target)
        if isinstance(told, Missing):
            return told
        if told.status != 200:
            _log.error(
                "the gateway at %s answered with status %d; do the master keys differ?", address, told.status
            )
            return Missing.SILENT
        answer = _read(told, _Told, address=address)
        return Missing.SILENT if answer is None else answer.holder

    def asked_by(self, gateway: str) -> None:
        """Note that this gateway lives, see `OtherGateways.asked_by`."""
        if self._calls.asked_by(gateway) and self._looking is None:
            # One that dies before its address was ever looked up would vanish unnoticed, with what it has claimed.
            self._looking = self._tasks.spawn(self._look_up())

    async def _ask(self, address: str, sandbox_id: SandboxId) -> Whereabouts:
        told = await self._calls.ask(address, f"/internal/sandboxes/{sandbox_id}/instance")
        if isinstance(told, Missing):
            return told
        if told.status != 200:
            return Missing.DENIED if told.status == 404 else Missing.SILENT
        place = _read(told, _Place, address=address)
        if place is None:
            return Missing.SILENT
        return place.instance_id or place.end or (Missing.STARTING if place.pending else Missing.DENIED)

    async def _others(self) -> tuple[list[str], bool]:
        """Return the known addresses of the other gateways, and whether these are all."""
        if self._looking is None and asyncio.get_running_loop().time() >= self._look_again_at:
            self._looking = self._tasks.spawn(self._look_up())
        if self._looking is not None:
            # A question's timeout does not end it: resolvers may always take longer than one question waits.
            await asyncio.shield(self._looking)
        return self._addresses, self._all_known

    async def _look_up(self) -> None:
        self._all_known = False
        try:
            found = await self._all()
            self._found(
                [
                    address
                    for address in found
                    if not is_own(address, host=self._settings.own_host, port=self._settings.own_port)
                ]
            )
        except OSError as error:
            _log.warning("the other gateways cannot be found by %s: %s", self._settings.name, error)
        finally:
            self._looking = None
            pause = _KEPT if self._all_known else _RETRIED
            self._look_again_at = asyncio.get_running_loop().time() + pause

    async def _all(self) -> list[str]:
        if self._endpoints is None:
            return await addresses_of(self._host, self._port)
        try:
            async with asyncio.timeout(self._settings.resolve):
                return await addresses_of(self._host, self._port)
        except OSError as error:  # a TimeoutError is one
            _log.info("DNS does not tell the other gateways, asking the API server: %r", error)
            return await self._endpoints()

    def _found(self, addresses: list[str]) -> None:
        if not set(self._addresses) <= set(addresses):
            self._calls.one_vanished()
        self._addresses, self._all_known = addresses, True
        self._calls.keep_only(addresses)
