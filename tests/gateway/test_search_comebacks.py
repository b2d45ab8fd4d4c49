"""Random lives of a gateway that dies, and comes back in whatever way, as another one's searches see it.

Whoever asks for a key gets no answer that frees it before the sidecars were polled, from after the death, for what the
dead gateway had claimed last.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot_contract.ids import SandboxId
from sandlot_gateway.backends.kubernetes.peers import Peers, PeerSettings
from sandlot_gateway.core.owners import STARTING, KeyAnswer, KeyQuestion
from sandlot_gateway.data.errors import DialError, UpstreamError
from sandlot_gateway.data.pool import Answer

from tests.gateway.lives_messages import VirtualTime

QUESTION = KeyQuestion("alpha", "key", SandboxId("sb-1"), "gateway")
ADDRESS = "other:2"


class OtherGateway:
    """One address, at which a gateway listens or not. `how`: what a call of it comes to."""

    def __init__(self, loop: VirtualTime) -> None:
        self._loop = loop
        self.how = "answers"
        self.is_listed = True
        self.begun = 0  # how often it has
        self.may_claim = True  # it has asked for a key since it began, which it does before it claims
        self.unfound: list[
            float
        ] = []  # when it died, having claimed; the sidecars have not been polled since
        self.noticed: set[float] = set()  # of these

    async def fetch(self, address: str, *_: Any, timeout: float, **__: Any) -> Answer:
        match self.how:
            case "refuses":
                self.noticed |= set(self.unfound)
                raise DialError(address, "refused", refused=True, nothing_listens=True)
            case "is silent":
                await asyncio.sleep(timeout)
                raise UpstreamError("no answer")
            case "starts":
                self.noticed |= set(self.unfound)
                return Answer(503, [], json.dumps({**STARTING}).encode())
        return Answer(200, [], json.dumps({"holder": None}).encode())

    def die(self) -> None:
        if self.how != "refuses" and self.may_claim:
            self.unfound.append(self._loop.now)
        self.how = "refuses"

    def come_back(self, how: str) -> None:
        """It knows of no claim of its own, and has not claimed yet."""
        if self.how == "refuses":
            self.begun, self.may_claim = self.begun + 1, False
        self.how = how


class Life:
    """A gateway that asks, with the sidecars that its searches poll."""

    def __init__(self, loop: VirtualTime) -> None:
        self.loop = loop
        self.other = OtherGateway(loop)
        pool: Any = self.other
        self.peers = Peers(PeerSettings("gateways:1", own_port=1), pool=pool, token=lambda: "spt_0")
        self.polled = asyncio.Event()
        self.asking: asyncio.Task[KeyAnswer] | None = None

    async def addresses(self, host: str, port: int) -> list[str]:
        return [ADDRESS] if self.other.is_listed else []

    async def look(self) -> None:
        began = self.loop.now
        await self.polled.wait()
        self.other.unfound = [died for died in self.other.unfound if died > began]

    def do(self, event: str) -> None:
        other = self.other
        if event == "dies":
            other.die()
        elif event in ("answers", "is silent") or (event == "starts" and other.how == "refuses"):
            other.come_back(event)
        elif event == "asks" and other.how not in ("refuses", "starts"):
            other.may_claim = True
            self.run(lambda: self.peers.asked_by(str(other.begun)))
        elif event == "vanishes" and other.how == "refuses":
            other.is_listed = False
        elif event == "is listed":
            other.is_listed = True
        elif event == "sidecars answer":
            self.polled.set()
            self.loop.run_until_complete(self.loop.rest())
            self.polled.clear()
        elif event == "question" and self.asking is None:
            self.asking = self.loop.create_task(self.peers.holder_of_key(QUESTION, look=self.look))

    def run(self, call: Any) -> None:
        async def within() -> None:
            call()

        self.loop.run_until_complete(within())

    def pass_time(self, seconds: float) -> None:
        until = self.loop.now + seconds
        while True:
            self.loop.run_until_complete(self.loop.rest())
            self.check()
            if self.loop.now >= until:
                return
            self.loop.now += 0.5

    def check(self) -> None:
        if self.asking is not None and self.asking.done():
            answer, self.asking = self.asking.result(), None
            if self.other.noticed & set(self.other.unfound):
                assert answer.searching, "the key is free while what it had claimed last is looked for"
                assert not answer.all_heard


@contextmanager
def life() -> Iterator[Life]:
    loop = VirtualTime()
    one = Life(loop)
    try:
        with patch("sandlot_gateway.backends.kubernetes.peers.addresses_of", one.addresses):
            yield one
    finally:
        loop.run_until_complete(one.peers.close())
        if one.asking is not None:
            one.asking.cancel()
        loop.run_until_complete(loop.rest())
        loop.close()


EVENTS = ["dies", "answers", "is silent", "starts", "asks", "vanishes", "is listed", "sidecars answer"]


@settings(max_examples=600, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from([*EVENTS, *["question"] * 4]), st.sampled_from([0.0, 1.5, 3.0, 6.0])),
        max_size=20,
    )
)
def test_no_key_is_free_before_the_last_claims_were_looked_for(events: list[tuple[str, float]]) -> None:
    with life() as one:
        for event, seconds in events:
            one.do(event)
            one.pass_time(seconds)
