"""Which warm pool a create takes from that says less than its whole template, and what a cold one tells."""

from __future__ import annotations

import asyncio

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.control.fitting import Wanted, fit
from sandlot_gateway.core.instances import PoolSpec

from tests.gateway.conftest import Running
from tests.waiting import until

SMALL = Template(image="host", cpu=0.5, memory=512 << 20, disk=1 << 30, pids=256)


async def warmed(box: Running, spec: PoolSpec) -> None:
    await box.backend.set_pool(spec)
    await until(lambda: box.gateway.supply.slots.warm.count(spec.name) == spec.size)


async def test_what_is_not_said_fits_any_pool_of_the_image(box: Running) -> None:
    await warmed(box, PoolSpec("small", SMALL, 2))
    made = await box.create()
    assert (made["poolHit"], made["coldReason"]) == (True, None)
    assert (made["cpuCores"], made["memoryGB"], made["diskSizeGB"]) == (0.5, 0.5, 1.0)
    await until(lambda: box.gateway.supply.slots.warm.count("small") == 2)
    assert (await box.create(memory_gb=0.5, gpu_count=0))["poolHit"] is True


@pytest.mark.parametrize(
    ("said", "word"),
    [({"memory_gb": 4}, "memory_gb"), ({"memory_gb": 0.25}, "memory_gb"), ({"pids": 300}, "pids")],
)
async def test_a_create_that_starts_cold_beside_a_pool_says_which_field_differs(
    box: Running, said: dict[str, float], word: str
) -> None:
    await warmed(box, PoolSpec("small", SMALL, 1))
    made = await box.create(**said)
    assert made["poolHit"] is False
    assert made["coldReason"].startswith(f"{word}: ")
    assert "'small'" in made["coldReason"]
    again = (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()
    assert again["coldReason"] == made["coldReason"]
    text = await box.metrics()
    assert f'sandlot_cold_creates_total{{reason="{word}"}} 1.0' in text


async def test_a_create_beside_an_empty_pool_says_so_and_has_its_template(box: Running) -> None:
    box.machine.hold_ready = asyncio.Event()
    await box.backend.set_pool(PoolSpec("small", SMALL, 1))
    waiting = asyncio.create_task(box.create())
    await until(lambda: box.gateway.supply.waiting == 1)
    box.machine.hold_ready.set()
    made = await waiting
    assert (made["poolHit"], made["memoryGB"]) == (False, 0.5)
    assert made["coldReason"] == "none_ready: pool 'small' has none of its 1 ready"
    # The pool's own start served it: no other was begun.
    assert box.machine.launched == 1


async def test_without_a_pool_of_the_image_there_is_nothing_to_say(box: Running) -> None:
    made = await box.create()
    assert (made["poolHit"], made["coldReason"], made["memoryGB"]) == (False, None, 1.0)


async def test_a_pool_without_an_image_is_nothing_where_instances_keep_theirs(box: Running) -> None:
    """One may be left from when slots were on."""
    box.machine.pools["slots"] = PoolSpec("slots", Template(image="", memory=8 << 30), 1)
    made = await box.create()
    assert (made["poolHit"], made["coldReason"], made["memoryGB"]) == (False, None, 1.0)


def test_one_that_is_ready_comes_first_then_the_defaults_then_the_smallest() -> None:
    wanted = Wanted("host", None, None, None, None, 0, None)
    usual = PoolSpec("usual", Template(image="host"), 1)
    small = PoolSpec("small", SMALL, 1)
    large = PoolSpec("large", Template(image="host", memory=8 << 30), 1)

    def chosen(*pools: PoolSpec, ready: set[str]) -> Template | None:
        return fit(wanted, pools=pools, ready=lambda pool: int(pool.name in ready)).template

    assert chosen(small, usual, large, ready={"small", "usual", "large"}) == usual.template
    assert chosen(small, usual, large, ready={"large"}) == large.template
    assert chosen(large, small, ready={"large", "small"}) == SMALL
    assert chosen(large, small, ready=set()) == SMALL


def test_another_runtime_or_a_gpu_is_given_only_when_it_is_asked_for() -> None:
    wanted = Wanted("host", None, None, None, None, 0, None)
    pools = {
        "runtime_class": PoolSpec("p", Template(image="host", runtime_class="kata"), 1),
        "gpu_count": PoolSpec("p", Template(image="host", gpu_count=1, gpu_type="H100"), 1),
    }
    for word, pool in pools.items():
        found = fit(wanted, pools=[pool], ready=lambda _: 1)
        assert found.template is None
        assert found.missed is not None
        assert found.missed.startswith(f"{word}: ")
