"""Addresses of the gateways of a world of lives, and their questions of keys: the real `Peers`, over calls without delay."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from sandlot_gateway.backends.kubernetes.peers import Peers, PeerSettings
from sandlot_gateway.core.owners import STARTING, KeyQuestion
from sandlot_gateway.data.errors import DialError, UpstreamError
from sandlot_gateway.data.pool import Answer

from tests.gateway.lives import World
from tests.gateway.lives_gateway import Gateway

PORT = 8642


class Addresses(World):
    """A world whose gateways have addresses."""

    come_back = False  # gateways that were killed, at their addresses
    kept_host: str | None = None  # of the next gateway

    async def addresses(self, host: str, port: int) -> list[str]:
        gateways: list[Any] = self.gateways
        return [f"{one.host}:{PORT}" for one in gateways]

    def new_host(self) -> str:
        kept, self.kept_host = self.kept_host, None
        return kept or f"10.1.0.{self.made}"

    def kill(self, gateway: Gateway, *, keep_disk: bool = False) -> None:
        killed: Any = gateway
        self.kept_host = killed.host if self.come_back else None
        super().kill(gateway, keep_disk=keep_disk)


class Keys(Peers):
    """Of one gateway."""

    def __init__(self, gateway: Any) -> None:
        pool: Any = _Calls(gateway)
        settings = PeerSettings("gateways:1", own_host=gateway.host, own_port=PORT)
        super().__init__(settings, pool=pool, token=lambda: "spt_0")


class _Calls:
    """A gateway's `HttpPool` to the others."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway

    async def fetch(self, address: str, method: str, target: str, **_: Any) -> Answer:
        world = self._gateway.world
        found = [one for one in world.gateways if f"{one.host}:{PORT}" == address]
        if not found:
            raise DialError(address, "refused", refused=True, nothing_listens=True)
        if found[0].peers.silent:
            raise UpstreamError("no answer in time")
        if not found[0].recovered:
            return Answer(503, [], json.dumps({**STARTING}).encode())
        question = msgspec.convert(dict(parse_qsl(urlsplit(target).query)), KeyQuestion, strict=False)
        holder = found[0].lifecycle.following.keyed.answer(question)
        body = {"holder": None if holder is None else asdict(holder)}
        return Answer(200, [], json.dumps(body).encode())
