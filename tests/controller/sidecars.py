"""The sidecars of all pods of a test, behind one port: each is known by its token, and answers `end` and `state`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from sandlot_contract.keyring import Keyring
from sandlot_controller.tokens import InstanceTokens
from sandlot_kube.objects import Pod


class FakeSidecars:
    def __init__(self, pods: Mapping[str, Pod], *, tokens: InstanceTokens) -> None:
        self.claimed: set[str] = set()
        self.owners: dict[str, str] = {}  # of those of them whose sidecar names its owner
        self.generations: dict[str, int] = {}  # of those that are reused
        self.asked: list[str] = []  # instances whose sidecar was asked to end if nobody owns it
        self.told: dict[str, str] = {}  # those that were told to end → the verdict
        self.know_last = True  # of `after_owner`, which those of earlier builds ignore
        self.last: set[str] = set()  # those that end with their owner
        self.looks = 0  # how often a sidecar was asked for its state
        self.failing: set[str] = set()  # those that do not answer the next request to end
        self.stopping: set[str] = set()  # those whose start command has its stop grace
        self.port = 0
        self._pods = pods
        self._tokens = tokens

    def use(self, keys: Keyring) -> None:
        """Those of pods of these master keys."""
        self._tokens.use(keys)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        app = web.Application()
        app.add_routes([web.post("/v1/end", self._end), web.get("/v1/state", self._state)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        try:
            yield
        finally:
            await runner.cleanup()

    async def _end(self, request: web.Request) -> web.Response:
        body = await request.json()
        name = self._whose(request)
        if name is None:
            return web.json_response({"error": "unauthorized"}, status=401)
        if name in self.failing:
            self.failing.discard(name)
            return web.json_response({"error": "starting"}, status=503)
        if (only_of := body.get("only_of")) is not None and self.owners.get(name, only_of) != only_of:
            return web.json_response({"error": "claimed"}, status=409)
        if self.know_last and body.get("after_owner") is True and name in self.claimed:
            self.last.add(name)
            return web.json_response({"phase": "claimed"})
        if body.get("only_unclaimed") is not True:
            self.told[name] = body["verdict"]
            return self._ended(name)
        self.asked.append(name)
        if name in self.claimed:
            return web.json_response({"error": "claimed"}, status=409)
        return self._ended(name)

    async def _state(self, request: web.Request) -> web.Response:
        name = self._whose(request)
        if name is None:
            return web.json_response({"error": "unauthorized"}, status=401)
        self.looks += 1
        phase = "claimed" if name in self.claimed else "warm"
        state = {"phase": phase, "sandbox_id": self.owners.get(name)}
        return web.json_response({**state, "generation": self.generations.get(name, 1)})

    def _ended(self, name: str) -> web.Response:
        state = "stopping" if name in self.stopping else "none"
        return web.json_response({"phase": "ended", "start_command": {"state": state, "exit_code": None}})

    def _whose(self, request: web.Request) -> str | None:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        return next((name for name, pod in self._pods.items() if self._tokens.of(pod) == token), None)
