"""Creates while nothing can be started, instances that others take, and what the local backend does not load."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from sandlot_contract.template import Template
from sandlot_gateway.core.backend import Unavailable
from sandlot_gateway.core.instances import PoolSpec
from sandlot_gateway.settings import Settings

from tests.waiting import loop_turns, until


def away(count: int = 1, *, retry_after: float = 30.0) -> list[Exception]:
    return [Unavailable("no API server", retry_after=retry_after, refuse=True) for _ in range(count)]


async def post(running, **fields):
    body = {"docker_image": "host", **fields}
    return await running.client.post("/api/v1/sandbox", json=body)


async def test_a_create_that_needs_a_start_is_refused_and_leaves_nothing(box) -> None:
    box.machine.fail_launch = away()
    refused = await post(box)
    assert refused.status_code == 503, refused.text
    assert refused.headers["retry-after"] == "30"
    assert "no API server" in refused.text
    assert box.gateway.directory.total_live == 0
    assert box.gateway.supply.waiting == 0
    # At once from now on: no start is tried again before its time.
    again = await post(box, wait_seconds=0)
    assert again.status_code == 503, again.text
    assert box.machine.launched == 1


async def test_what_is_warm_is_given_all_the_same(box) -> None:
    await box.backend.set_pool(PoolSpec("default", Template("host"), 1))
    await until(lambda: len(box.gateway.supply.slots.warm) == 1)
    box.machine.capacity = 0
    box.machine.fail_launch = away()
    assert (await post(box, cpu_cores=2)).status_code == 503
    made = await post(box)
    assert made.status_code == 201, made.text
    assert made.json()["poolHit"] is True


async def test_who_was_answered_pending_waits_until_starts_can_be_again(box) -> None:
    box.machine.hold_ready = asyncio.Event()
    made = await post(box, wait_seconds=0)
    assert made.json()["status"] == "PENDING", made.text
    [instance_id] = box.machine.instances
    box.machine.fail_launch = away(3, retry_after=0.02)
    box.machine.hold_ready.set()
    box.backend.lose(instance_id)
    await until(lambda: not box.machine.fail_launch)
    told = await until(lambda: box.gateway.directory.get(made.json()["id"]))
    await until(lambda: told.status == "RUNNING")


async def test_a_start_that_somebody_else_claimed_is_not_waited_for(box) -> None:
    box.machine.hold_ready = asyncio.Event()
    creating = asyncio.create_task(post(box))
    await until(lambda: box.machine.instances)
    [taken] = box.machine.instances
    box.gateway.supply.report_owned(box.machine.instances[taken], 1, "sb-another")
    await until(lambda: len(box.machine.instances) == 2)
    del box.machine.instances[taken]
    box.machine.hold_ready.set()
    made = (await creating).json()
    assert made["status"] == "RUNNING"
    assert box.gateway.directory.get(made["id"]).instance_id != taken
    assert taken not in box.backend.destroyed


async def test_the_ends_of_what_others_had_end_no_create_that_waits(box) -> None:
    """Each of its starts was claimed by another gateway's create, whose sandbox has ended before anything is heard here."""
    box.machine.hold_ready = asyncio.Event()
    creating = asyncio.create_task(post(box))
    others: set[str] = set()
    for _ in range(3):
        [taken] = await until(lambda: box.machine.instances.keys() - others)
        others.add(taken)
        box.backend.lose(taken, verdict="deleted", message="deleted")
    await until(lambda: box.machine.launched == 4)
    box.machine.hold_ready.set()
    assert (await creating).json()["status"] == "RUNNING"


async def test_a_start_that_fails_is_charged_to_nobody_but_whom_it_was_for(box) -> None:
    box.machine.hold_ready = asyncio.Event()
    first = (await post(box, wait_seconds=0)).json()["id"]
    second = (await post(box, wait_seconds=0)).json()["id"]
    await until(lambda: len(box.machine.instances) == 2)
    firsts, seconds = box.machine.instances
    await box.client.delete(f"/api/v1/sandbox/{first}")
    told = box.gateway.directory.get(second)
    for lost in (firsts, seconds):  # the second create may have one that fails, and this one is its first
        box.backend.lose(lost, verdict="start_failed")
        assert told.status == "PENDING"
    await until(lambda: box.machine.launched == 3)


async def test_a_claim_that_cannot_get_through_takes_nobodys_instance_away(box) -> None:
    made = (await post(box)).json()
    owned = box.machine.of_sandbox(made["id"])
    instance = box.machine.instances[owned.instance_id]
    box.gateway.lifecycle.ends.give_back(instance, "sb-another")
    await until(lambda: owned.ends_seen == 1)
    await loop_turns()
    assert (owned.phase, box.backend.destroyed) == ("claimed", [])
    box.gateway.lifecycle.ends.give_back(instance, made["id"])
    await until(lambda: owned.instance_id in box.backend.destroyed)


async def test_the_backend_hears_of_claims_and_ends(box) -> None:
    made = (await post(box, labels=["one"])).json()
    await box.client.delete(f"/api/v1/sandbox/{made['id']}")
    [(instance_id, claim)] = box.backend.claims[:1]
    assert (claim.sandbox_id, claim.tenant, claim.labels) == (made["id"], "alpha", ("one",))
    assert (instance_id, "deleted") in box.backend.ends


def test_the_local_backend_loads_nothing_of_kubernetes() -> None:
    code = (
        "import sys, sandlot_gateway.__main__, sandlot_gateway.serve as serve, sandlot_gateway.settings as s\n"
        "import sandlot_gateway.backends.local.backend\n"
        "print(sorted({'aiohttp', 'sandlot_kube', 'yaml', 'kopf'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_kubernetes_backend_needs_the_shared_key(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="--key-file is required"):
        Settings(backend="kubernetes")
    with pytest.raises(ValidationError, match="--key-file is for"):
        Settings(backend="local", key_file=tmp_path / "key")


def test_a_retry_has_time_to_ask_again_before_the_grace_of_its_sandbox_ends(tmp_path: Path) -> None:
    shared = {"backend": "kubernetes", "key_file": tmp_path / "key"}
    assert Settings(**shared, orphan_grace=5.0).orphan_grace == 5.0
    with pytest.raises(ValueError, match="--orphan-grace must be at least 5 "):
        Settings(**shared, orphan_grace=4.9)
    assert Settings(orphan_grace=0.0).orphan_grace == 0.0


@pytest.mark.parametrize(
    ("key", "says"),
    [(b"short", "at least 16 bytes"), (b"k" * 32, "cannot find the Kubernetes API server"), (None, "master")],
)
def test_a_start_that_cannot_be_says_why(
    tmp_path: Path, state_dir: Path, key: bytes | None, says: str
) -> None:
    if key is not None:
        (tmp_path / "master").write_bytes(key)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sandlot_gateway", "--backend", "kubernetes", "--port", "0"),
            *("--webhook-port", "0", "--key-file", str(tmp_path / "master"), "--state-dir", str(state_dir)),
        ],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert says in done.stderr
