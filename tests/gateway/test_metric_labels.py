"""However many names callers make up, a gateway's metrics keep their label sets; only those of pools have a caller's text."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sandlot_gateway.control.pool_limits import MOST_POOLS

from tests.gateway.conftest import API, API_KEYS, Running, running
from tests.gateway.machine import Machine
from tests.waiting import until

WORD = "zqx"  # is in every text that a caller chooses
ROUNDS = 3
OF_EACH = 4
MOST = 210  # of one family: those of `sandlot_requests` are its 9 routes by their ends
TENANTS = [f"{WORD}-tenant-{number}" for number in range((ROUNDS + 1) * OF_EACH)]

LabelSets = dict[str, set[frozenset[tuple[str, str]]]]


@pytest.fixture
async def many(state_dir: Path, machine: Machine) -> AsyncIterator[Running]:
    """A gateway with many tenants."""
    keys = ",".join((API_KEYS, *(f"key-of-{tenant}:{tenant}" for tenant in TENANTS)))
    async with running(state_dir, machine, api_keys=keys) as box:
        yield box


def label_sets(page: str) -> LabelSets:
    """By family, without the bounds of histograms' buckets."""
    return {
        family.name: {
            frozenset((name, value) for name, value in sample.labels.items() if name != "le")
            for sample in family.samples
        }
        for family in text_string_to_metric_families(page)
    }


async def use(box: Running, number: int) -> None:
    """Everything that a caller can name, named as nobody has before; ended when this returns."""
    word, key = f"{WORD}-{number}", f"key-of-{TENANTS[number]}"
    headers = box.as_tenant(key) | {"user-agent": word, "x-request-id": word}
    client = box.client
    fields = {
        "docker_image": f"{word}/image:{word}",
        "name": word,
        "labels": [f"{word}={word}"],
        "environment_vars": {word.replace("-", "_"): word},
    }
    made = await client.post(f"{API}/sandbox", json=fields, headers=headers)
    assert made.status_code == 201, made.text
    name = made.json()["id"]

    # What is refused: an image, a field, values, a key, ids and paths.
    for wrong in (
        fields | {"docker_image": f"{word}:{word}:{word}"},
        fields | {"cpu_cores": word},
        fields | {"labels": word},
        fields | {"environment_vars": word},
    ):
        refused = await client.post(f"{API}/sandbox", json=wrong, headers=headers)
        assert 400 <= refused.status_code < 500, refused.text
    stranger = await client.get(f"{API}/sandbox", headers=box.as_tenant(word))
    assert stranger.status_code == 401, stranger.text
    for method, path in (
        ("GET", f"{API}/{word}"),
        ("GET", f"/{word}/{word}?{word}={word}"),
        ("POST", f"/sbx/{word}/exec"),
        ("GET", f"/sbx/{name}/{word}"),
        ("GET", f"/expose/{word}/{word}"),
        ("PROPFIND", f"{API}/sandbox/{word}"),
        ("PROPFIND", f"/sbx/{name}/{word}"),
    ):
        answer = await client.request(method, path, headers=headers)
        # Prime's clients take 502 for a sandbox that does not exist.
        assert 400 <= answer.status_code < 500 or answer.status_code == 502, (method, path, answer.text)

    # What goes well, with a caller's words: a command, a file, an operator's pool.
    done = await client.post(f"/sbx/{name}/exec", json={"command": word}, headers=headers)
    assert done.json()["stdout"] == word
    missing = await client.get(f"/sbx/{name}/read-file", params={"path": f"/{word}"}, headers=headers)
    assert missing.status_code == 404, missing.text
    operator = box.as_tenant("key-ops")
    made = await client.put(f"{API}/pools/{word}", json={"size": 1, "image": word}, headers=operator)
    assert made.status_code == 200, made.text
    assert f'pool="{word}"' in await box.metrics()
    assert (await client.delete(f"{API}/pools/{word}", headers=operator)).status_code == 200

    # What a sidecar says of its end, and somebody who is none.
    sidecar = box.machine.of_sandbox(name)
    told = json.dumps({**sidecar.state(), "event": word, "phase": word, "verdict": word})
    assert await sidecar.send(told.encode(), signature=word) == 401
    sidecar.end(word, word)
    await until(lambda: sidecar.instance_id in box.backend.destroyed)


async def test_names_of_callers_add_no_label_set_and_are_in_none(many: Running) -> None:
    rounds: list[LabelSets] = []
    for one in range(ROUNDS + 1):
        for number in range(one * OF_EACH, (one + 1) * OF_EACH):
            await use(many, number)
        page = await many.metrics()
        assert WORD not in page.lower(), [line for line in page.splitlines() if WORD in line.lower()]
        rounds.append(label_sets(page))
    first, *later = rounds
    assert ("verdict", "other") in {pair for each in first["sandlot_sandbox_ends"] for pair in each}
    for after in later:
        assert after == first
    assert {name: len(sets) for name, sets in first.items() if len(sets) > MOST} == {}


async def test_pools_that_a_tenant_keeps_add_label_sets_up_to_a_bound(many: Running) -> None:
    """Those of size 0 use nothing that a quota limits."""
    headers = many.as_tenant(f"key-of-{TENANTS[0]}")
    added: list[dict[str, int]] = []
    for first in range(0, 3 * MOST_POOLS, MOST_POOLS):
        for number in range(first, first + MOST_POOLS):
            put = f"{API}/pools/{WORD}-{number}"
            answer = await many.client.put(put, json={"size": 0}, headers=headers)
            assert answer.status_code in (200, 422), answer.text
        families = label_sets(await many.metrics())
        named = {name: sum(WORD in str(each) for each in sets) for name, sets in families.items()}
        added.append({name: count for name, count in named.items() if count})
    assert added == [{"sandlot_ready_queue_depth": MOST_POOLS, "sandlot_pool_size": MOST_POOLS}] * 3
