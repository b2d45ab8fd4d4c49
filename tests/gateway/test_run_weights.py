"""Weights over the control routes: of a run, of a tenant by the quotas file, and what becomes of them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import API, Running, running
from tests.gateway.machine import Machine
from tests.waiting import until

EACH = 8


async def begin(box: Running, run: str, **fields: Any) -> httpx.Response:
    body = {"holder": "one", "grace_seconds": 600, **fields}
    return await box.client.put(f"{API}/runs/{run}", json=body)


async def wait_all(box: Running, creates: Sequence[dict[str, Any]], key: str = "key-a") -> list[str]:
    """Begin creates that wait, in this order, and return their ids."""
    made: list[str] = []
    for fields in creates:
        body = {"docker_image": "host", "wait_seconds": 0, **fields}
        answer = await box.client.post(f"{API}/sandbox", json=body, headers=box.as_tenant(key))
        assert answer.status_code == 201, answer.text
        made.append(answer.json()["id"])
    return made


async def first_turns(
    box: Running, ids: dict[str, list[str]], *, keys: dict[str, str], count: int
) -> Counter[str]:
    """Return how many of the first places each group of these creates has."""
    found: list[tuple[int, str]] = []
    for group, made in ids.items():
        for one in made:
            headers = box.as_tenant(keys.get(group, "key-a"))
            shown = (await box.client.get(f"{API}/sandbox/{one}", headers=headers)).json()
            if shown["queuePosition"] is not None:
                found.append((shown["queuePosition"], group))
    return Counter(group for _, group in sorted(found)[:count])


async def test_a_run_s_weight_orders_its_creates_and_outlives_the_gateway(
    state_dir: Path, machine: Machine
) -> None:
    machine.hold_ready = asyncio.Event()
    async with running(state_dir, machine, max_starts=1) as box:
        assert (await begin(box, "light")).json()["weight"] == 1
        assert (await begin(box, "heavy", weight=3)).json()["weight"] == 3
        ids = {run: await wait_all(box, [{"run_id": run}] * EACH) for run in ("light", "heavy")}
        assert await first_turns(box, ids, keys={}, count=8) == {"heavy": 6, "light": 2}
        # A repeated PUT changes it, also for those that wait.
        assert (await begin(box, "heavy")).json()["weight"] == 1

        async def evenly() -> bool:
            return await first_turns(box, ids, keys={}, count=8) == {"heavy": 4, "light": 4}

        await until(evenly)
        assert (await begin(box, "heavy", weight=3)).json()["weight"] == 3
    async with running(state_dir, machine, max_starts=1) as box:
        assert (await box.client.get(f"{API}/runs/heavy")).json()["weight"] == 3

        async def as_before() -> bool:
            return await first_turns(box, ids, keys={}, count=8) == {"heavy": 6, "light": 2}

        await until(as_before)
        taken = await begin(box, "heavy", holder="two", take_over=True, weight=5)
        assert taken.json()["weight"] == 5
        machine.hold_ready.set()


async def test_a_tenant_s_weight_is_in_the_quotas_file_and_its_runs_divide_only_its_share(
    state_dir: Path, machine: Machine, tmp_path: Path
) -> None:
    file = tmp_path / "quotas.json"
    file.write_text(json.dumps({"*": {"weight": 3}, "alpha": {"weight": 1}}))
    machine.hold_ready = asyncio.Event()
    keys = {"alpha": "key-a", "beta": "key-b"}
    async with running(state_dir, machine, max_starts=1, quotas_file=file) as box:
        assert (await begin(box, "greatest", weight=1000)).status_code == 200
        fields = {"alpha": {"run_id": "greatest"}, "beta": {}}
        ids = {name: await wait_all(box, [fields[name]] * EACH, keys[name]) for name in fields}
        assert await first_turns(box, ids, keys=keys, count=8) == {"alpha": 2, "beta": 6}
        file.write_text("{}")

        async def evenly() -> bool:
            return await first_turns(box, ids, keys=keys, count=8) == {"alpha": 4, "beta": 4}

        await until(evenly)
        machine.hold_ready.set()


@pytest.mark.parametrize("weight", [0, 1001, 1.5, "3", None])
async def test_a_weight_that_is_none_is_a_422_that_names_it(box: Running, weight: object) -> None:
    refused = await begin(box, "bad-weight", weight=weight)
    assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, "weight")
