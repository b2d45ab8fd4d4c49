"""A gateway of the world of lives_kubernetes.py: its whole backend, over an API server and sidecars of that world."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_gateway.backend_events import BackendEvents
from sandlot_gateway.backends.kubernetes.backend import KubernetesBackend
from sandlot_gateway.backends.kubernetes.peer_calls import Missing
from sandlot_gateway.backends.kubernetes.peers import PeerSettings
from sandlot_gateway.backends.kubernetes.search import Look
from sandlot_gateway.backends.kubernetes.settings import KubernetesSettings
from sandlot_gateway.core.owners import KeyAnswer, KeyQuestion, RecordedEnd
from sandlot_gateway.data.errors import UpstreamError
from sandlot_gateway.data.pool import Answer
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.sidecars import ClaimAnswer, Sidecars

from tests.gateway.api_server import NAMESPACE, Client
from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_keys import Keys
from tests.gateway.lives_messages import Word

_KINDS = {
    "/v1/claim": "claim",
    "/v1/end": "end",
    "/v1/state": "state",
    "/v1/reset": "reset",
    "/v1/use": "use",
    "/v1/orphan": "orphan",
}


class Pool:
    """A gateway's `HttpPool`, over the world."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def fetch(
        self, address: str, method: str, target: str, *, body: bytes = b"", timeout: float = 30.0, **_: Any
    ) -> Answer:
        world = self._gateway.world
        host = address.partition(":")[0]
        owner = next((one for one in world.sidecars.values() if one.address.partition(":")[0] == host), None)
        instance_id = owner.instance_id if owner is not None else host.partition(".")[0]
        kind = _KINDS[target]
        try:
            async with asyncio.timeout(timeout):
                result = await self._gateway.call(kind, instance_id, json.loads(body) if body else {})
        except TimeoutError:
            raise UpstreamError("no answer in time") from None
        match result:
            case Exception():
                raise result
            case Answer():
                return result
            case ClaimAnswer("claimed", state) | (dict() as state):
                return Answer(200, [], json.dumps(state).encode())
            case ClaimAnswer("gone"):
                return Answer(410, [], b'{"error":"gone"}')
            case ClaimAnswer("stale"):
                return Answer(409, [], b'{"error":"stale_generation"}')
            case ClaimAnswer():
                return Answer(409, [], b'{"error":"claimed"}')
            case _:
                return Answer(200 if result == "ended" else 409, [], b"{}")

    def cut(self, address: str) -> None:
        return

    def forget(self, address: str) -> None:
        return


class Peers:
    """A gateway's `Peers`: what it tells is a word like a sidecar's, to each of the other gateways."""

    missing = Missing.DENIED  # what they say of an unknown one: one may be silent
    deaf = False  # takes all others for dead
    silent = False  # answers no question about a key in time

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._keys = Keys(gateway)

    async def close(self) -> None:
        await self._keys.close()

    async def tell(self, body: bytes, *, told: Callable[[], None]) -> None:
        world = self._gateway.world
        if self._gateway.alive:
            others = [one for one in world.gateways if one is not self._gateway]
            world.words += [Word(one, "", {"news": body}) for one in others]
        told()

    async def whereabouts(self, sandbox_id: str) -> InstanceId | RecordedEnd | Missing:
        return self.found(sandbox_id) or self.missing

    def found(self, sandbox_id: str) -> InstanceId | RecordedEnd | Missing | None:
        """As the others' `/internal/sandboxes/{id}/instance` says."""
        for one in self._gateway.world.gateways:
            known = one.directory.get(SandboxId(sandbox_id)) if one is not self._gateway else None
            if known is not None and not known.live:
                return known.recorded_end()
            if known is not None:
                return known.instance_id if known.status == "RUNNING" else Missing.STARTING
        return None

    async def end_of(self, sandbox_id: str) -> RecordedEnd | None:
        others = [one for one in self._gateway.world.gateways if one is not self._gateway]
        known = [one.directory.get(SandboxId(sandbox_id)) for one in others]
        return next((one.recorded_end() for one in known if one is not None and not one.live), None)

    def asked_by(self, gateway: str) -> None:
        self._keys.asked_by(gateway)

    def is_searching(self) -> bool:
        return self._keys.is_searching()

    async def holder_of_key(self, question: KeyQuestion, *, look: Look) -> KeyAnswer:
        if self.deaf:
            return KeyAnswer((), all_heard=True)
        answer = await self._keys.holder_of_key(question, look=look)
        if not self._gateway.alive:
            await self._gateway.world.loop.create_future()
        return answer


class KubernetesGateway(Gateway):
    image = "example.org/image:1"

    def machine(self) -> tuple[Any, Any]:
        world: Any = self.world
        self.host = world.new_host()
        pool: Any = Pool(self)
        client: Any = Client(world.api, self, send=self._send)
        settings = KubernetesSettings(
            namespace=NAMESPACE,
            settle_timeout=world.settle_timeout,
            peers=PeerSettings("gateways:1", own_port=1),
        )
        self.peers = Peers(self)
        with patch("sandlot_gateway.backends.kubernetes.backend.Peers", lambda *_, **__: self.peers):
            backend = KubernetesBackend(tokens=self.tokens, pool=pool, settings=settings, client=client)
        return backend, Sidecars(pool)

    def receive(self, word: Word) -> None:
        if "news" in word.state:
            self._run(lambda: self.backend.told(word.state["news"]))
        else:
            super().receive(word)

    async def begin(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self.recovered = False
        world: Any = self.world
        if world.settle_timeout:
            self._tasks.append(asyncio.create_task(self._start()))
        else:
            await self._start()

    async def _start(self) -> None:
        await self.backend.start(
            BackendEvents(
                supply=self.supply,
                lifecycle=self.lifecycle,
                directory=self.directory,
                found=self.webhooks.found,
                refused=self._count,
            )
        )
        self.lifecycle.adoption.resume()
        self.recovered = True

    def clock(self) -> float:
        world: Any = self.world
        return world.api.now()

    async def _send(self, method: str, path: str, body: object) -> Any:
        return await self.call("api", path, {"method": method, "body": body})

    def answer_pending(self, sandbox: Sandbox) -> None:
        """Its caller has waited long enough."""

        async def answer() -> None:
            await self.lifecycle.wait(sandbox, timeout=0.0)
            await self.lifecycle.hand_out(sandbox)

        self._run(lambda: self._tasks.append(asyncio.create_task(answer())))

    def delete(self, sandbox: Sandbox) -> None:
        """Its caller is told once this gateway says that it is gone everywhere."""
        self.world.deleted[sandbox.id] = self

        async def delete() -> None:
            began = self.world.loop.time()
            self.lifecycle.ends.delete(sandbox)
            await self.lifecycle.deleted_everywhere(sandbox)
            # One that nobody could be told of in time is this gateway's alone, until it has told somebody.
            if self.alive and self.world.loop.time() < began + self.backend.delete_wait:
                self.world.answered.add(sandbox.id)
                self.world.answered_last = self

        self._run(lambda: self._tasks.append(asyncio.create_task(delete())))
