"""A stand-in for the gateway around a real local backend: a real Unix socket that takes real sidecars' webhooks."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandlot_contract.ids import InstanceId
from sandlot_gateway.backends.local.backend import LocalBackend
from sandlot_gateway.backends.local.settings import LocalSettings
from sandlot_gateway.core.backend import StillPreparing
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.reuse import Binding, takes_back
from sandlot_gateway.core.slot import Loss, Phase
from sandlot_gateway.data.pool import Answer, HttpPool
from sandlot_gateway.tokens import Tokens

from tests.waiting import SECONDS

KEY = b"a key of the tests, 32 bytes long"


class Gateway:
    """Keeps the ready instances as the gateway does: warm ones by id, until claimed, given up or lost."""

    def __init__(self, directory: Path, *, secret_paths: Sequence[Path] = (), **settings: Any) -> None:
        self.tokens = Tokens(KEY)
        self.pool = HttpPool()
        self.state_dir = directory / "state"
        self.backend = LocalBackend(
            state_dir=self.state_dir,
            cache_dir=directory / "cache",
            tokens=self.tokens,
            pool=self.pool,
            secret_paths=secret_paths,
            settings=LocalSettings(**settings),
        )
        self.warm: dict[str, Instance] = {}
        self.found: dict[str, dict[str, Any]] = {}
        self.lost: dict[str, tuple[str, str]] = {}
        self.ended: dict[str, dict[str, Any]] = {}
        self.ready_at: dict[str, float] = {}
        self.generations: dict[str, int] = defaultdict(lambda: 1)
        self.bindings: dict[str, Binding] = {}
        # Until then a sidecar that is not known may be one of those that the backend still looks for.
        self._found_all = False
        self._changed: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._news = asyncio.Condition()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Gateway:
        self.backend.acquire()
        socket = self.state_dir / "gateway.sock"
        socket.unlink(missing_ok=True)
        self.server = await asyncio.start_unix_server(self._receive, str(socket))
        await self.backend.start(self)
        self._found_all = True
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            await self.backend.destroy_all(timeout=60)
        await self.backend.stop(timeout=60)
        self.server.close()
        await self.server.wait_closed()
        await self.pool.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Events of the backend.

    def instance_found(self, instance: Instance, state: dict[str, Any]) -> None:
        self.found[instance.id] = state
        if state["phase"] == "warm":
            self.warm[instance.id] = instance
        self._tell()

    def instance_lost(self, instance_id: str, loss: Loss) -> None:
        self.warm.pop(instance_id, None)
        self.lost[instance_id] = (loss.verdict, loss.message or "")
        self._tell()

    def phase(self, instance_id: str) -> Phase | None:
        if instance_id in self.warm:
            return Phase.WARM
        return Phase.ENDING if instance_id in self.ready_at or instance_id in self.found else None

    def warm_count(self, pool: str) -> int:
        return sum(1 for instance in self.warm.values() if instance.pool == pool)

    def give_up(self, pool: str) -> str | None:
        for instance_id, instance in self.warm.items():
            if instance.pool == pool:
                del self.warm[instance_id]
                return instance_id
        return None

    # What tests do.

    async def until(self, condition: Any, *, timeout: float = SECONDS) -> Any:
        """Waits until `condition()` is true, looking again at every event."""
        async with asyncio.timeout(timeout), self._news:
            await self._news.wait_for(condition)
        return condition()

    async def until_ready(self, instance: Instance, *, generation: int = 1) -> None:
        def there() -> bool:
            if instance.id in self.lost:
                raise AssertionError(f"lost: {self.lost[instance.id]}")
            return instance.id in self.warm and self.generations[instance.id] >= generation

        await self.until(there)

    async def call(
        self, instance: Instance, method: str, target: str, body: Any = None, *, token: str
    ) -> Answer:
        headers = [("authorization", f"Bearer {token}"), ("content-type", "application/json")]
        data = b"" if body is None else json.dumps(body).encode()
        return await self.pool.fetch(instance.address, method, target, headers=headers, body=data)

    async def image_for(self, instance: Instance, image: str) -> dict[str, Any]:
        """The `image` of a claim, as long as its preparation may take."""
        try:
            return (await self.backend.claim_image(image, tenant="default", instance=instance)).document
        except StillPreparing as slow:
            await slow.finished()
            return (await self.backend.claim_image(image, tenant="default", instance=instance)).document

    async def claim(self, instance: Instance, **extra: Any) -> str:
        """Claims it and gives the sandbox's token."""
        self.warm.pop(instance.id, None)
        generation = self.generations[instance.id]
        sandbox_id = f"sb-{instance.id}-{generation}"
        token = self.tokens.sandbox(instance.id, generation, sandbox_id)
        template = instance.template
        body = {
            "sandbox_id": sandbox_id,
            "token": token,
            "tenant": "default",
            "env": {},
            "secrets": {},
            "limits": {
                "cpu": template.cpu,
                "memory": template.memory,
                "pids": template.pids,
                "disk": template.disk,
            },
            "network": "full",
            "timeout": None,
            "idle_timeout": None,
            "workdir": None,
            "start_command": None,
            "meta": {},
            "generation": generation,
        } | extra
        answer = await self.call(instance, "POST", "/v1/claim", body, token=instance.token)
        assert answer.status == 200, answer.body
        state = json.loads(answer.body)
        self.bindings[instance.id] = Binding(state["bound_to"], state["uses"])
        if instance.pool is not None:
            self.backend.nudge(instance.pool)
        return token

    async def recycle(self, instance: Instance) -> bool:
        """After its owner's end, as the gateway does."""
        own = [status.spec for status in self.backend.pools() if instance.pool in (None, status.spec.name)]
        binding = self.bindings[instance.id]
        pools = [spec.name for spec in own if takes_back(spec, instance, binding, now=time.time())]
        generation = self.generations[instance.id]
        return await self.backend.recycle(instance, generation=generation, tenant="default", pools=pools)

    async def run(
        self, instance: Instance, token: str, command: str | list[str], **extra: Any
    ) -> dict[str, Any]:
        answer = await self.call(instance, "POST", "/v1/exec", {"command": command} | extra, token=token)
        assert answer.status in (200, 408), answer.body
        result = answer.json()
        assert isinstance(result, dict)
        return result

    # Webhooks.

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                headers = {
                    name.strip().lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in head.decode().split("\r\n")[1:])
                }
                body = await reader.readexactly(int(headers["content-length"]))
                instance_id = InstanceId(headers["x-sandlot-instance"])
                status = self._webhook(instance_id, headers["x-sandlot-signature"], body)
                proof = self.tokens.webhook_answer(instance_id, headers["x-sandlot-sender"])
                writer.write(
                    f"HTTP/1.1 {status} X\r\nX-Sandlot-Gateway: {proof}\r\nContent-Length: 0\r\n\r\n".encode()
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    def _webhook(self, instance_id: InstanceId, signature: str, body: bytes) -> int:
        key = self.tokens.instance(instance_id).encode()
        assert signature == "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()
        document = json.loads(body)
        instance = self.backend.instance(instance_id)
        if document["event"] == "ended":
            self.warm.pop(instance_id, None)
            self.ended[instance_id] = document
        elif instance is None:
            return 410 if self._found_all else 503
        elif document["event"] == "ready":
            self.generations[instance_id] = document["generation"]
            self.ready_at[instance_id] = asyncio.get_running_loop().time()
            self.warm[instance_id] = instance
            self.backend.ready(instance_id)
        self._tell()
        return 200

    def _tell(self) -> None:
        async def notify() -> None:
            async with self._news:
                self._news.notify_all()

        task = asyncio.get_running_loop().create_task(notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
