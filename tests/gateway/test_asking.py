"""Questions to sidecars: whoever asks again just then, when an answer has come or is not wanted, is heard as well."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_gateway.backends.kubernetes.prober import Prober
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.data.pool import HttpPool

from tests.waiting import until

ID = InstanceId("i-0123456789abcdef")


class Sidecar:
    """Answers each question with the phase of the moment, while it is not held."""

    def __init__(self) -> None:
        self.phase = "warm"
        self.claiming = False
        self.asked = asyncio.Semaphore(0)
        self.free = asyncio.Event()
        self.free.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /v1/state "):
                self.asked.release()
                state = {"instance_id": ID, "phase": self.phase, "claiming": self.claiming}
                await self.free.wait()
                body = json.dumps(state).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def asking(
    told: Callable[[Prober, Instance, dict[str, Any]], bool],
    *,
    is_there: Callable[[InstanceId], bool] = lambda instance_id: True,
) -> AsyncIterator[tuple[Prober, Instance, Sidecar]]:
    sidecar = Sidecar()
    server = await asyncio.start_server(sidecar.serve, "127.0.0.1", 0)
    pool = HttpPool()
    asker = Prober(
        pool=pool,
        told=lambda instance, state: told(asker, instance, state),
        is_there=is_there,
        may_start=lambda instance: False,
    )
    host, port = server.sockets[0].getsockname()
    instance = Instance(ID, Template("python:3.12"), f"{host}:{port}", token="secret")
    try:
        async with asyncio.timeout(20):
            yield asker, instance, sidecar
    finally:
        await asker.close()
        await pool.close()
        server.close()


async def test_a_question_in_the_moment_of_an_answer_is_asked() -> None:
    phases: list[str] = []
    both = asyncio.Event()

    def told(asker: Prober, instance: Instance, state: dict[str, Any]) -> bool:
        phases.append(state["phase"])
        if len(phases) == 1:
            sidecar.phase = "claimed"
            asyncio.get_running_loop().call_soon(asker.ask, instance)  # as an event of the same round does
        else:
            both.set()
        return True

    async with asking(told) as (asker, instance, sidecar):
        asker.ask(instance)
        await both.wait()
    assert phases == ["warm", "claimed"]


async def test_a_question_right_after_one_was_given_up_is_asked() -> None:
    answered = asyncio.Event()

    def told(asker: Prober, instance: Instance, state: dict[str, Any]) -> bool:
        answered.set()
        return True

    async with asking(told) as (asker, instance, sidecar):
        sidecar.free.clear()
        asker.ask(instance)
        await sidecar.asked.acquire()
        asker.leave(ID)
        asker.ask(instance)
        await sidecar.asked.acquire()
        sidecar.free.set()
        await answered.wait()


async def test_one_that_is_being_asked_is_not_asked_twice() -> None:
    answers: list[dict[str, Any]] = []
    answered = asyncio.Event()

    def told(asker: Prober, instance: Instance, state: dict[str, Any]) -> bool:
        answers.append(state)
        answered.set()
        return True

    async with asking(told) as (asker, instance, sidecar):
        sidecar.free.clear()
        asker.ask(instance)
        await sidecar.asked.acquire()
        asker.ask(instance)
        sidecar.free.set()
        await answered.wait()
        await asker.settle(timeout=10)
        assert sidecar.asked.locked()
    assert len(answers) == 1


async def test_an_answer_that_is_older_than_the_question_does_not_count() -> None:
    """It was on its way, to an earlier question, when the other owner became known."""
    phases: list[str] = []
    answered = asyncio.Event()

    def told(asker: Prober, instance: Instance, state: dict[str, Any]) -> bool:
        phases.append(state["phase"])
        if state["phase"] == "claimed":
            answered.set()
        return True

    async with asking(told) as (asker, instance, sidecar):
        sidecar.free.clear()
        asker.ask(instance)
        await sidecar.asked.acquire()
        sidecar.phase = "claimed"
        asker.ask(instance, since_now=True)
        sidecar.free.set()
        await answered.wait()
        await sidecar.asked.acquire()
        assert sidecar.asked.locked()
    assert phases == ["warm", "claimed"]


async def test_one_that_applies_a_claim_is_asked_until_it_names_its_owner() -> None:
    """It was taken for free."""
    phases: list[str] = []
    heard = asyncio.Event()

    def told(asker: Prober, instance: Instance, state: dict[str, Any]) -> bool:
        phases.append(state["phase"])
        heard.set()
        return True

    async with asking(told) as (asker, instance, sidecar):
        sidecar.claiming = True
        asker.ask(instance)
        for _ in range(2):
            await sidecar.asked.acquire()
        sidecar.phase, sidecar.claiming = "claimed", False
        await heard.wait()
    assert phases == ["claimed"]


async def test_one_that_is_gone_is_asked_no_more() -> None:
    """Its start may have failed after its pod was shown: no event of it comes later."""
    there = True

    async with asking(lambda *_: False, is_there=lambda instance_id: there) as (asker, instance, sidecar):
        asker.ask(instance)
        await sidecar.asked.acquire()
        there = False
        await until(lambda: not asker._tasks)
