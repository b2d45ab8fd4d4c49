"""What a node agent hears of the images that slots use, from before a claim until another image is laid."""

from __future__ import annotations

import asyncio

import pytest
from sandlot_gateway.backends.kubernetes.image_uses import ImageUses
from sandlot_gateway.backends.kubernetes.node_agents import AgentError, AgentUnreachable, Prepared
from sandlot_gateway.core.instances import Instance, Laid

from tests.gateway.image_use_parts import ONE, TWO, Agents, Sidecar, slot, uses_of
from tests.waiting import until


async def test_an_image_that_no_claim_has_laid_is_taken_back() -> None:
    agents, instance = Agents(), slot()
    uses = uses_of(agents, Sidecar(TWO))
    await uses.use("n1", ONE, instance)
    uses.unlaid(instance, ONE)
    await until(lambda: agents.calls == [("use", ONE, None), ("unuse", ONE, 1.0)])
    await uses.close(timeout=60)


async def test_an_image_that_another_gateway_has_laid_meanwhile_stays() -> None:
    agents, instance = Agents(), slot()
    sidecar = Sidecar(ONE)
    uses = uses_of(agents, sidecar)
    await uses.use("n1", ONE, instance)
    uses.unlaid(instance, ONE)
    await until(lambda: sidecar.asked)
    sidecar.image, instance.laid = TWO, Laid(ONE)
    uses.unlaid(instance, ONE)  # it had the image before this claim
    await asyncio.sleep(0.05)
    await uses.close(timeout=60)
    assert (agents.calls, sidecar.asked) == ([("use", ONE, None)], 1)


async def test_the_next_claim_of_the_same_image_keeps_it() -> None:
    agents, instance = Agents(), slot()
    uses = uses_of(agents, Sidecar(TWO), unlaid_for=0.1)
    await uses.use("n1", ONE, instance)
    uses.unlaid(instance, ONE)
    await uses.use("n1", ONE, instance)
    instance.laid = Laid(ONE)
    uses.laid(instance, before=None)
    await asyncio.sleep(0.2)
    await uses.close(timeout=60)
    assert agents.calls == [("use", ONE, None)] * 2


@pytest.mark.parametrize("how", ["unreachable", "cancelled"])
async def test_a_use_whose_answer_is_lost_is_taken_back(how: str) -> None:
    agents, instance = Agents(), slot()
    uses = uses_of(agents, Sidecar(TWO))
    if how == "unreachable":
        agents.answers = False
        with pytest.raises(AgentUnreachable):
            await uses.use("n1", ONE, instance)
    else:
        never = asyncio.Event()

        async def silent(node: str, image_id: str, *, slot: str) -> Prepared:
            agents.calls.append(("use", image_id, None))
            await never.wait()
            raise AssertionError

        agents.use = silent
        task = asyncio.create_task(uses.use("n1", ONE, instance))
        await until(lambda: agents.calls)
        task.cancel()
        await asyncio.wait([task])
    await until(lambda: agents.calls == [("use", ONE, None), ("unuse", ONE, None)])
    await uses.close(timeout=60)


async def ask(uses: ImageUses, instance: Instance) -> Prepared | None:
    return await uses.ask("n1", "one:1", instance, tenant="t", auth=None, expected=ONE)


async def test_a_use_that_was_asked_for_by_name_is_one_like_any_other() -> None:
    agents, instance = Agents(), slot()
    uses = uses_of(agents, Sidecar(TWO))
    used = await ask(uses, instance)
    assert used is not None
    assert (used.id, used.since) == (ONE, 1.0)
    instance.laid = Laid(ONE)
    uses.laid(instance, before=Laid(TWO))
    await until(lambda: agents.calls == [("use", ONE, None), ("unuse", TWO, 1.0)])
    await uses.close(timeout=60)


async def test_the_image_that_a_name_means_by_now_stays() -> None:
    """The node has another one by it than the gateway knew, and an earlier claim of that one had failed."""
    agents, instance = Agents(), slot()
    uses = uses_of(agents, Sidecar(ONE), unlaid_for=0.1)
    await uses.use("n1", TWO, instance)
    uses.unlaid(instance, TWO)
    agents.means = TWO
    used = await ask(uses, instance)
    assert used is not None
    assert used.id == TWO
    await asyncio.sleep(0.2)
    await uses.close(timeout=60)
    assert agents.calls == [("use", TWO, None)] * 2


async def test_the_image_that_a_name_meant_before_is_taken_back() -> None:
    """The gateway took it for the one of the name, and an earlier claim of it had failed."""
    agents, instance = Agents(), slot()
    uses = uses_of(agents, Sidecar(TWO))
    await uses.use("n1", ONE, instance)
    uses.unlaid(instance, ONE)
    agents.means = TWO
    assert await ask(uses, instance) is not None
    await until(lambda: agents.calls[-1] == ("unuse", ONE, None))
    assert agents.calls[:-1] == [("use", ONE, None), ("use", TWO, None)]
    await uses.close(timeout=60)


@pytest.mark.parametrize("why", ["preparing", "older", "refused"])
async def test_a_use_that_has_not_begun_leaves_an_earlier_one_to_its_end(why: str) -> None:
    agents, instance = Agents(), slot()
    sidecar = Sidecar(TWO)
    uses = uses_of(agents, sidecar, unlaid_for=0.05)
    await uses.use("n1", ONE, instance)
    uses.unlaid(instance, ONE)
    agents.preparing, agents.older = why == "preparing", why == "older"
    agents.refuses = AgentError("unauthorized", "no right") if why == "refused" else None
    if why == "refused":
        with pytest.raises(AgentError):
            await ask(uses, instance)
    else:
        assert await ask(uses, instance) is None
    await until(lambda: agents.calls[-1] == ("unuse", ONE, None))
    await uses.close(timeout=60)


async def test_a_use_by_name_whose_answer_is_lost_is_taken_back() -> None:
    agents, instance = Agents(), slot()
    agents.answers = False
    uses = uses_of(agents, Sidecar(TWO))
    with pytest.raises(AgentUnreachable):
        await ask(uses, instance)
    await until(lambda: agents.calls == [("use", ONE, None), ("unuse", ONE, None)])
    await uses.close(timeout=60)


async def test_the_end_of_the_earlier_use_waits_for_the_owner_s_first_command() -> None:
    agents, instance = Agents(), slot()
    uses = uses_of(agents, Sidecar(TWO), after_claim=0.1)
    await uses.use("n1", ONE, instance)
    instance.laid = Laid(ONE)
    uses.laid(instance, before=Laid(TWO))
    await asyncio.sleep(0)
    await uses.use("n1", TWO, instance)
    instance.laid = Laid(TWO)
    uses.laid(instance, before=Laid(ONE))
    await until(lambda: len(agents.calls) == 4)
    assert agents.calls == [("use", ONE, None), ("use", TWO, None), ("unuse", TWO, 1.0), ("unuse", ONE, 2.0)]
    await uses.close(timeout=60)


async def test_without_the_time_of_a_use_the_earlier_one_ends_at_once() -> None:
    agents, instance = Agents(), slot()
    agents.told_since = False
    uses = uses_of(agents, Sidecar(TWO), after_claim=3600.0)
    await uses.use("n1", ONE, instance)
    instance.laid = Laid(ONE)
    uses.laid(instance, before=Laid(TWO))
    await until(lambda: agents.calls == [("use", ONE, None), ("unuse", TWO, None)])
    await uses.close(timeout=60)


async def test_a_gateway_that_stops_finishes_what_it_tells() -> None:
    agents, instance = Agents(), slot()
    agents.open.clear()
    uses = uses_of(agents, Sidecar(TWO))
    await uses.use("n1", TWO, instance)
    instance.laid = Laid(TWO)
    uses.laid(instance, before=Laid(ONE))
    closing = asyncio.create_task(uses.close(timeout=60))
    await asyncio.sleep(0.05)
    assert not closing.done()
    agents.open.set()
    await closing
    assert agents.calls == [("use", TWO, None), ("unuse", ONE, 1.0)]
