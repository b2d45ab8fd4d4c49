"""Quotas of tenants as callers meet them: what is refused and how, what gives back, and what a tenant can read."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.followed_file import BadContent
from sandlot_gateway.keys import Tenant
from sandlot_gateway.quotas import BadQuotas, Limits, Quotas

from tests.gateway.conftest import Running, running
from tests.gateway.machine import Machine
from tests.waiting import until

Document = dict[str, Any]
HOST = {"docker_image": "host"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "quotas.json"


@pytest.fixture
async def limited(state_dir: Path, machine: Machine, file: Path) -> AsyncIterator[Running]:
    """Tenant alpha has quotas of each size, beta a rate, the others as many sandboxes as three."""
    write(
        file,
        {
            "alpha": {"sandboxes": 4, "cores": 2.5, "memory_gb": 8, "gpus": 1, "checkpoint_bytes": 5},
            "beta": {"creates_per_second": 0.01, "creates_burst": 2},
            "*": {"sandboxes": 3},
        },
    )
    async with running(state_dir, machine, quotas_file=file) as box:
        yield box


def write(file: Path, document: object) -> None:
    file.write_text(json.dumps(document))


async def ask(box: Running, key: str = "key-a", **fields: Any) -> httpx.Response:
    return await box.client.post("/api/v1/sandbox", json={**HOST, **fields}, headers=box.as_tenant(key))


async def quotas(box: Running, key: str = "key-a") -> dict[str, tuple[float | None, float | None]]:
    answer = await box.client.get("/api/v1/user/whoami", headers=box.as_tenant(key))
    return {one["name"]: (one["limit"], one["used"]) for one in answer.json()["data"]["quotas"]}


async def measured(box: Running) -> dict[str, tuple[float | None, float | None]] | None:
    """The quotas once the store of checkpoints has been measured, for which no answer waits long."""
    found = await quotas(box)
    return None if found["checkpoint_bytes"][1] is None else found


async def test_a_quota_refuses_what_does_not_fit_and_an_end_makes_room(limited: Running) -> None:
    made = await limited.create(cpu_cores=1.5, memory_gb=6)
    cases: list[tuple[Document, str, str]] = [
        ({"cpu_cores": 1.1}, "cores", "2.5, 1.5 cores are in use, and this create asks for 1.1"),
        ({"memory_gb": 2.5}, "memory_gb", "8, 6 GiB of memory are in use, and this create asks for 2.5"),
    ]
    for fields, quota, words in cases:
        refused = await ask(limited, **fields)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10"), refused.text
        assert f"quota {quota} of tenant 'alpha': it is {words}; delete sandboxes" in refused.json()["detail"]
    # A quota that leaves room does not matter, nor does another tenant.
    assert (await ask(limited, memory_gb=1)).status_code == 201
    assert (await ask(limited, "key-b", cpu_cores=4)).status_code == 201
    assert await until(lambda: measured(limited)) == {
        "sandboxes": (4, 2),
        "cores": (2.5, 2.5),
        "memory_gb": (8, 7),
        "gpus": (1, 0),
        "creates_per_second": (None, None),
        "creates_burst": (None, None),
        "checkpoint_bytes": (5, 0),
        "weight": (1, None),
    }
    for _ in range(2):  # the second end gives nothing back
        await limited.client.delete(f"/api/v1/sandbox/{made['id']}")
    assert (await quotas(limited))["cores"] == (2.5, 1)
    text = await limited.metrics()
    assert 'sandlot_quota_refusals_total{quota="cores"} 1.0' in text
    assert 'sandlot_creates_total{outcome="quota",source="none"} 2.0' in text


async def when_forbidden(limited: Running) -> httpx.Response | None:
    """The answer to a create once the changed file counts."""
    answer = await ask(limited)
    return answer if answer.status_code == 403 else None


async def test_a_tenant_that_may_have_none_is_told_so_at_once(limited: Running, file: Path) -> None:
    write(file, {"alpha": {"sandboxes": 0}})
    refused = await until(lambda: when_forbidden(limited))
    assert refused is not None
    assert "retry-after" not in refused.headers
    assert "the quota sandboxes of tenant 'alpha' is 0" in refused.json()["detail"]


async def test_a_create_that_never_fits_is_told_so_at_once(limited: Running) -> None:
    refused = await ask(limited, gpu_count=2)
    assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, "gpu_count")
    assert "asks for 2 GPUs, and the quota gpus of tenant 'alpha' is 1" in refused.json()["detail"]
    assert "retry-after" not in refused.headers


async def test_what_waits_counts_and_what_fails_gives_back(limited: Running, machine: Machine) -> None:
    machine.hold_ready = asyncio.Event()
    waiting = asyncio.create_task(ask(limited, cpu_cores=2))
    await until(lambda: limited.gateway.supply.waiting == 1)
    assert (await quotas(limited))["cores"] == (2.5, 2)
    assert (await ask(limited)).status_code == 429
    machine.hold_ready.set()
    made = (await waiting).json()
    await limited.client.delete(f"/api/v1/sandbox/{made['id']}")
    # A start that fails is a sandbox that has ended, and one that is refused is none.
    for error in (BackendError("down", error_type="IMAGE_PULL_FAILED"), BackendError("bad", field="image")):
        machine.fail_launch = [error]
        await ask(limited, cpu_cores=1.5)
    assert (await quotas(limited))["cores"] == (2.5, 0)


async def test_a_rate_says_when_to_come_back_and_a_retry_is_no_create(limited: Running) -> None:
    first = await ask(limited, "key-b", idempotency_key="k")
    assert (await ask(limited, "key-b")).status_code == 201
    refused = await ask(limited, "key-b")
    assert refused.status_code == 429
    assert 50 < int(refused.headers["retry-after"]) <= 100
    assert (
        "quota creates_per_second of tenant 'beta': it is 0.01 with a burst of 2" in refused.json()["detail"]
    )
    again = await ask(limited, "key-b", idempotency_key="k")
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
    rate, burst = (
        (await quotas(limited, "key-b"))["creates_per_second"],
        (await quotas(limited, "key-b"))["creates_burst"],
    )
    assert rate == (0.01, None)
    assert burst[0] == 2
    assert burst[1] is not None
    assert 1.5 < burst[1] <= 2


async def test_a_gateway_that_comes_back_counts_what_runs(
    state_dir: Path, machine: Machine, file: Path
) -> None:
    write(file, {"alpha": {"cores": 2}})
    async with running(state_dir, machine, quotas_file=file) as box:
        await box.create(cpu_cores=1.5)
    async with running(state_dir, machine, quotas_file=file) as box:
        assert (await quotas(box))["cores"] == (2, 1.5)
        assert (await ask(box)).status_code == 429


async def test_the_file_is_followed_and_a_bad_one_changes_nothing(
    limited: Running, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await limited.create()
    write(file, {"alpha": {"sandboxes": "many"}})
    await until(lambda: any("the earlier quotas stay" in one.getMessage() for one in caplog.records))
    (logged,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert "tenant 'alpha', sandboxes: Input should be a valid integer" in logged
    assert 'sandlot_reload_failing{file="quotas"} 1.0' in await limited.metrics()
    assert (await quotas(limited))["sandboxes"] == (4, 1)
    write(file, {"alpha": {"sandboxes": 1}})

    async def is_used() -> bool:
        return (await quotas(limited))["sandboxes"] == (1, 1)

    await until(is_used)
    assert (await ask(limited)).status_code == 429
    assert 'sandlot_reload_failing{file="quotas"} 0.0' in await limited.metrics()


async def test_quotas_of_all_tenants_alone_hold(state_dir: Path, machine: Machine, file: Path) -> None:
    write(file, {"*": {"gpus": 1}})
    async with running(state_dir, machine, quotas_file=file) as box:
        answer = await box.client.post("/api/v1/sandbox", json={"docker_image": "host", "gpu_count": 2})
        assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, "gpu_count"), answer.text
        assert (await quotas(box))["gpus"] == (1, 0)


async def test_a_tenants_own_pools_stay_within_its_quotas(limited: Running) -> None:
    async def put(name: str, **fields: Any) -> httpx.Response:
        return await limited.client.put(f"/api/v1/pools/{name}", json=fields)

    assert (await put("one", size=1, cpu_cores=2)).status_code == 200
    refused = await put("two", size=1)
    assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, "size")
    assert "instances of at most 2.5 cores warm (quota cores)" in refused.json()["detail"]
    assert (await put("one", cpu_cores=3)).status_code == 422
    assert (await put("one", cpu_cores=1)).status_code == 200


def test_the_most_specific_quota_holds() -> None:
    found = Quotas(Limits(sandboxes=10, checkpoint_bytes=100))
    found.replace(
        b'{"*": {"cores": 5, "sandboxes": 3}, "a": {"cores": null, "gpus": 1}, "b": {"sandboxes": null}}'
    )
    assert found.of_tenant("a") == Limits(sandboxes=3, gpus=1, checkpoint_bytes=100)
    assert found.of_tenant("b") == Limits(cores=5, checkpoint_bytes=100)
    assert found.of_tenant("c") == Limits(sandboxes=3, cores=5, checkpoint_bytes=100)
    # The number in a key is that key's.
    assert found.of(Tenant("a", max_sandboxes=7)).sandboxes == 7
    found.replace(b"{}")
    assert found.of_tenant("a") == Limits(sandboxes=10, checkpoint_bytes=100)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": {"sandboxes": -1}}', "tenant 'a', sandboxes: "),
        ('{"a": {"cores": true}}', "tenant 'a', cores: "),
        ('{"a": {"cores": NaN}}', "tenant 'a', cores: "),
        ('{"a": {"gpus": 1.5}}', "tenant 'a', gpus: "),
        ('{"a": {"creates_per_second": 0}}', "tenant 'a', creates_per_second: "),
        ('{"a": {"creates_burst": 5}}', "tenant 'a', creates_burst: set creates_per_second"),
        (
            '{"a": {"weight": 0}}',
            "tenant 'a', weight: Input should be greater than or equal to 1; correct it, or w",
        ),
        ('{"a": {"weight": 1001}}', "tenant 'a', weight: "),
        ('{"a": {"weight": 1.5}}', "tenant 'a', weight: "),
        ('{"a": {"cpus": 5}}', "tenant 'a', 'cpus': there is no such quota; use sandboxes, cores,"),
        ('{"a": {"cores": 5, "cores": 6}}', "'cores' is there twice"),
        ('{"a": {}, "a": {}}', "'a' is there twice"),
        ('{"a b": {}}', "tenant 'a b': the name must be"),
        ('{"a": 5}', "tenant 'a': must be an object"),
        ("[]", "it must be an object such as"),
        ("", "it is not JSON"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)
def test_bad_quotas_name_tenant_and_field_and_change_nothing(text: str, said: str) -> None:
    found = Quotas()
    found.replace(b'{"a": {"gpus": 1}}')
    with pytest.raises(BadQuotas, match="^" + said.replace("[", r"\[")):
        found.replace(text.encode())
    assert found.of_tenant("a") == Limits(gpus=1)


async def test_a_gateway_does_not_start_without_its_quotas(
    state_dir: Path, machine: Machine, file: Path
) -> None:
    with pytest.raises(BadContent, match=f"cannot use the quotas file {file}: cannot read it: No such file"):
        async with running(state_dir, machine, quotas_file=file):
            pass
