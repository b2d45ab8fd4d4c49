"""Which sandbox serves the clients of a paused one, at a gateway that did not begin it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from sandlot_contract.new_ids import new_instance_id, new_sandbox_id
from sandlot_gateway.directory import Directory
from sandlot_gateway.e2b.pauses import PAUSED
from sandlot_gateway.e2b.serving import Serving
from sandlot_gateway.e2b_ports import E2bPorts
from sandlot_gateway.sandboxes import Sandbox, Spec, from_pending_create, recovered

from tests.waiting import loop_turns, until

FIRST = new_sandbox_id(1e9)


def continuing(*, tenant: str = "alpha") -> Sandbox:
    ports = E2bPorts(public=False, host="app-${PORT}.example.com")
    spec = Spec(name="a", image="host", continues=FIRST, ports=ports)
    return Sandbox(id=new_sandbox_id(2e9), tenant=tenant, spec=spec, created_at=2e9, updated_at=2e9)


@pytest.mark.parametrize("learned", ["claim", "record"])
def test_it_is_found_by_the_id_of_the_paused_one_while_it_lives(learned: str) -> None:
    made = continuing()
    if learned == "claim":
        state = {"sandbox_id": made.id, "instance_id": new_instance_id(), "meta": made.meta()}
        known = recovered(msgspec.json.decode(msgspec.json.encode(state)), now=2e9)
    else:
        known = from_pending_create(made.id, made.request(), now=2e9)
    assert known.spec.ports == made.spec.ports
    directory = Directory()
    directory.add(known)
    assert directory.current(FIRST, "alpha") is known
    assert directory.current(known.id, "alpha") is known
    assert directory.current(FIRST, "beta") is None
    directory.end(known, verdict="deleted")
    assert directory.current(FIRST, "alpha") is None
    again = continuing()
    directory.add(again)
    assert directory.current(FIRST, "alpha") is again
    directory.drop(again)
    assert directory.current(FIRST, "alpha") is None


async def test_other_gateways_are_asked_only_where_one_may_have_continued_it() -> None:
    directory = Directory(clock=lambda: 2e9)
    asked: list[str] = []

    class Others:
        async def learn_claims(self, tenant: str) -> None:
            asked.append(tenant)
            if not directory.current(FIRST, tenant):
                directory.add(continuing())

    serving = Serving(directory, others=Others())  # type: ignore[arg-type]
    spec = Spec(name="a", image="host")
    killed, paused = (
        Sandbox(id=each, tenant="alpha", spec=spec, created_at=1e9, updated_at=1e9)
        for each in (new_sandbox_id(1e9), FIRST)
    )
    for sandbox, why in ((killed, None), (paused, PAUSED)):
        directory.add(sandbox)
        directory.end(sandbox, verdict="deleted", message=why)
    assert await serving.find(killed.id, "alpha") is None
    assert asked == []
    found = await serving.find(paused.id, "alpha")
    assert found is not None
    assert (found.spec.continues, asked) == (FIRST, ["alpha"])


async def test_requests_that_come_together_share_a_question_which_is_asked_after_they_came() -> None:
    directory = Directory(clock=lambda: 2e9)
    paused = Sandbox(
        id=FIRST, tenant="alpha", spec=Spec(name="a", image="host"), created_at=1e9, updated_at=1e9
    )
    directory.add(paused)
    directory.end(paused, verdict="deleted", message=PAUSED)
    asked, answer = 0, asyncio.Event()

    class Others:
        async def learn_claims(self, tenant: str) -> None:
            nonlocal asked
            asked += 1
            knows = asked == 2  # another gateway continues it while the first question is under way
            await answer.wait()
            if knows:
                directory.add(continuing())

    serving = Serving(directory, others=Others())  # type: ignore[arg-type]
    first = asyncio.create_task(serving.find(FIRST, "alpha"))
    await until(lambda: asked == 1)
    later = [asyncio.create_task(serving.find(FIRST, "alpha")) for _ in range(5)]
    await loop_turns(2)
    later[0].cancel()
    await asyncio.wait(later[:1])
    answer.set()
    await first
    assert all(await asyncio.gather(*later[1:]))
    assert asked == 2
    await serving.close()


async def test_a_kill_asks_the_others_also_about_a_sandbox_that_this_gateway_never_knew() -> None:
    directory = Directory(clock=lambda: 1e9, patience=1.0)  # where it may still come to be known

    class Others:
        async def learn_claims(self, tenant: str) -> None:
            directory.add(continuing())

    serving = Serving(directory, others=Others())  # type: ignore[arg-type]
    assert await serving.find(FIRST, "alpha") is None
    found = await serving.find_everywhere(FIRST, "alpha")
    assert found is not None
    assert found.spec.continues == FIRST
