"""The edge in front of SandboxFusion's API: bodies that are large, arrive together or never end, and callers that leave."""

from __future__ import annotations

import asyncio
from typing import Any

from sandlot_gateway.edge import Clients, Edge
from sandlot_gateway.fusion.body_budget import BodyAccount, BodyBudget
from sandlot_gateway.inside import Inside

PIECE = bytes(1 << 20)


class _Fusion:
    """Counts bodies, and answers none."""

    max_body = 32 << 20

    def __init__(self) -> None:
        self.ran = 0
        self.budget = BodyBudget(total=3 * 10 * len(PIECE), tenant=3 * 8 * len(PIECE))

    def account(self, scope: Any) -> BodyAccount:
        return self.budget.account(scope["tenant"])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.ran += 1


async def _other(scope: Any, receive: Any, send: Any, **_options: Any) -> None:
    raise AssertionError("not a path of SandboxFusion's API")


class _Gateway:
    def __init__(self) -> None:
        recovered = asyncio.Event()
        recovered.set()
        self.fusion = _Fusion()
        self.counted: list[int] = []
        self.edge = Edge(
            data=_other,
            control=_other,
            fusion=self.fusion,
            recovered=recovered,
            max_body=2 << 20,
            counted=self.counted.append,
            refusal=lambda scope: None,
            is_known=lambda scope: True,
            audit=None,
            inside=Inside(),
        )


class _Caller:
    """Sends a body in pieces of 1 MiB; with `stays`, the last one comes only when it leaves."""

    def __init__(self, gateway: _Gateway, pieces: int, *, tenant: str = "alpha", stays: bool = False) -> None:
        self.left = pieces
        self.sent: list[dict[str, Any]] = []
        self.stays = stays
        self.waits = asyncio.Event()
        self.leaves = asyncio.Event()
        head = {"type": "http", "scheme": "http", "method": "POST", "path": "/run_code", "headers": []}
        self.call = asyncio.create_task(gateway.edge({**head, "tenant": tenant}, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self.left == 0:
            self.waits.set()
            await self.leaves.wait()
            return {"type": "http.disconnect"}
        self.left -= 1
        return {"type": "http.request", "body": PIECE, "more_body": self.stays or self.left > 0}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)


async def test_a_draining_gateway_reads_a_large_body_to_its_end_and_answers_504() -> None:
    gateway = _Gateway()
    await gateway.edge.drain(Clients.ALL, timeout=0.0)
    caller = _Caller(gateway, 8)
    await caller.call
    assert caller.sent[0]["status"] == 504  # a reset in its place is no retry
    assert (caller.left, gateway.fusion.ran) == (0, 0)


async def test_bodies_count_while_they_arrive() -> None:
    gateway = _Gateway()
    slow = [_Caller(gateway, 4, stays=True), _Caller(gateway, 4, stays=True)]
    for caller in slow:
        await caller.waits.wait()
    refused = _Caller(gateway, 1)
    others = _Caller(gateway, 3, tenant="beta")
    for caller in (refused, others):
        await caller.call
        assert caller.sent[0]["status"] == 504
        assert b"too large together" in caller.sent[1]["body"]
    slow[0].leaves.set()
    await slow[0].call
    served = _Caller(gateway, 3)
    await served.call
    assert (served.sent, gateway.fusion.ran) == ([], 1)
    slow[1].leaves.set()
    await slow[1].call
    # Neither callers that left count as answered, nor one whose request ran.
    assert gateway.counted == [504, 504]
    assert await _Caller(gateway, 8).call is None
    assert gateway.fusion.ran == 2
