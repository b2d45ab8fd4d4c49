"""Creates that name secrets by reference: what the claim gets, what callers are told, and that no value is anywhere else."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from sandlot_gateway.backends.local.secrets import DirectorySecrets
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.engine.pending import PendingStore
from sandlot_gateway.sealing import Seal

from tests.gateway.conftest import API, OPERATOR, Running, running
from tests.gateway.machine import Machine
from tests.gateway.warm_pool import warmed
from tests.waiting import until

VALUE = "value-of-the-kept-secret"
REFS = {"TOKEN": {"secret": "model-api", "key": "token"}}


class Kept:
    """The operator's directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, value: str | bytes, *, tenant: str = "alpha", secret: str = "model-api") -> None:
        file = self.root / tenant / secret / "token"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(value if isinstance(value, bytes) else value.encode())


@pytest.fixture
def kept(tmp_path: Path, machine: Machine) -> Kept:
    kept = Kept(tmp_path / "kept")
    kept.put(VALUE)
    machine.secrets = DirectorySecrets(kept.root)
    return kept


async def refused(box: Running, refs: Any = REFS, **fields: Any) -> httpx.Response:
    body = {"docker_image": "host", "secret_refs": refs, **fields}
    answer = await box.client.post(f"{API}/sandbox", json=body)
    assert answer.status_code >= 400, answer.text
    return answer


def claimed(machine: Machine, sandbox_id: str) -> dict[str, Any]:
    claim = machine.of_sandbox(sandbox_id).claim
    assert claim is not None
    return claim


def files_below(*paths: Path) -> list[Path]:
    return [file for path in paths for file in (path, *path.rglob("*")) if file.is_file()]


async def test_the_claim_has_the_value_and_nothing_else_does(
    state_dir: Path, tmp_path: Path, machine: Machine, kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    options = {"audit_log": tmp_path / "audit.log", "access_log": 1.0}
    async with running(state_dir, machine, **options) as box:
        made = await box.create(secret_refs=REFS, secrets={"OWN": "own"}, name="first")
        assert claimed(machine, made["id"])["secrets"] == {"OWN": "own", "TOKEN": VALUE}
        assert made["secrets"] == {"OWN": "***", "TOKEN": "***"}
        assert made["secretRefs"] == REFS
        rotated = f"{VALUE}-rotated"
        kept.put(rotated)
        second = await box.create(secret_refs=REFS)
        assert claimed(machine, second["id"])["secrets"] == {"TOKEN": rotated}
        assert claimed(machine, made["id"])["secrets"]["TOKEN"] == VALUE
        kept.put(b"\xff" + VALUE.encode())
        shown = [json.dumps([made, second]), (await refused(box)).text]
        await box.client.post(f"/sbx/{made['id']}/exec", json={"command": "x"})
        for path in ("sandbox", "sandbox?overview=true", f"sandbox/{made['id']}", "stats", "usage"):
            shown.append((await box.client.get(f"{API}/{path}")).text)
        shown.append(await box.metrics())
        shown.append(json.dumps(claimed(machine, made["id"])["meta"]))
        # What other gateways read of it.
        sandbox = box.gateway.directory.get(made["id"])
        assert sandbox is not None
        shown.append(json.dumps([sandbox.request(), sandbox.ownership().request]))
        await box.client.delete(f"{API}/sandbox/{made['id']}")
    shown.append(caplog.text + str([record.__dict__ for record in caplog.records]))
    files = files_below(state_dir, tmp_path / "audit.log")
    assert any(b'"first"' in path.read_bytes() for path in files), "no record was written"
    shown += [path.read_bytes().decode("latin-1") for path in files]
    encoded = base64.b64encode(VALUE.encode()).decode()
    for form in (VALUE, VALUE.encode().hex(), encoded[:20]):
        assert not [text for text in shown if form in text]


async def test_no_answer_tells_which_secrets_exist(
    state_dir: Path, machine: Machine, kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether a secret is missing, lacks the key, or is another tenant's: a tenant is told the same."""
    caplog.set_level(logging.INFO)
    async with running(state_dir, machine) as box:
        await warmed(box)
        shutil.rmtree(kept.root / "alpha")
        (kept.root / "alpha").mkdir()
        answers = [await refused(box)]
        (kept.root / "alpha" / "model-api").mkdir()
        answers.append(await refused(box))
        kept.put(VALUE, tenant="beta")
        answers.append(await refused(box))
        (kept.root / "alpha" / "model-api" / "token").symlink_to(kept.root / "beta" / "model-api" / "token")
        answers.append(await refused(box))
        shutil.rmtree(kept.root / "alpha")
        (kept.root / "alpha").symlink_to(kept.root / "beta")
        answers.append(await refused(box))
        assert [answer.status_code for answer in answers] == [422] * 5
        assert len({answer.content for answer in answers}) == 1
        [error] = answers[0].json()["errors"]
        assert error["param"] == "secret_refs.TOKEN"
        assert "'model-api'" in error["details"]
        assert "'token'" in error["details"]
        assert len(box.gateway.supply.slots.warm) == 3, "none took a slot"
    assert "tenant alpha may not use" in caplog.text, "the operator is told more"


@pytest.mark.parametrize("tenant", [".", ".."])
async def test_no_tenant_s_name_leads_elsewhere(
    state_dir: Path, tmp_path: Path, machine: Machine, kept: Kept, tenant: str
) -> None:
    # Where `..` and `.` would lead.
    Kept(tmp_path.parent).put(VALUE, tenant=tmp_path.name)
    Kept(tmp_path).put(VALUE, tenant="kept")
    async with running(state_dir, machine, api_keys=f"key-a:{tenant}") as box:
        assert (await refused(box)).status_code == 422


@pytest.mark.parametrize(
    ("ref", "param"),
    [
        ({"secret": "../beta/model-api", "key": "token"}, "secret_refs.TOKEN.secret"),
        ({"secret": "..", "key": "token"}, "secret_refs.TOKEN.secret"),
        ({"secret": "model-api\n", "key": "token"}, "secret_refs.TOKEN.secret"),
        ({"secret": "model-api", "key": ".."}, "secret_refs.TOKEN.key"),
        ({"secret": "model-api", "key": "a/b"}, "secret_refs.TOKEN.key"),
        ({"secret": "model-api", "key": ""}, "secret_refs.TOKEN.key"),
        ({"secret": "model-api"}, "secret_refs.TOKEN.key"),
        ("model-api/token", "secret_refs.TOKEN"),
    ],
)
async def test_names_that_are_none_are_refused_with_their_field(
    state_dir: Path, machine: Machine, kept: Kept, ref: Any, param: str
) -> None:
    async with running(state_dir, machine) as box:
        answer = await refused(box, {"TOKEN": ref})
        assert answer.status_code == 422
        assert [error["param"] for error in answer.json()["errors"]] == [param]


@pytest.mark.parametrize(
    ("value", "why"), [(b"\xff\xfe", "UTF-8"), (b"a\x00b", "NUL"), (b"x" * 131_001, "larger")]
)
async def test_a_value_that_no_variable_can_hold_is_refused(
    state_dir: Path, machine: Machine, kept: Kept, value: bytes, why: str
) -> None:
    kept.put(value)
    async with running(state_dir, machine) as box:
        answer = await refused(box)
        assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, "secret_refs.TOKEN")
        assert why in answer.text


async def test_a_variable_has_one_source(state_dir: Path, machine: Machine, kept: Kept) -> None:
    async with running(state_dir, machine) as box:
        answer = await refused(box, secrets={"TOKEN": "mine"})
        assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, "secret_refs")
        kept.put("y" * 120_000)
        many = {f"V{number}": REFS["TOKEN"] for number in range(9)}
        answer = await refused(box, many)
        assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, "secret_refs")


async def test_without_the_setting_the_error_names_it(box: Running) -> None:
    answer = await refused(box)
    assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, "secret_refs")
    for setting in ("--secrets-dir", "--secrets-namespace", "gateway.secretRefs.enabled"):
        assert setting in answer.text
    assert box.machine.launched == 0


async def test_secrets_that_cannot_be_read_are_no_fault_of_the_caller(
    state_dir: Path, machine: Machine, kept: Kept
) -> None:
    async with running(state_dir, machine) as box:
        await warmed(box)
        away = kept.root.rename(kept.root.with_name("away"))
        answer = await refused(box)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["errors"] == []
        assert str(kept.root.parent) not in answer.text
        assert len(box.gateway.supply.slots.warm) == 3
        away.rename(kept.root)
        assert claimed(machine, (await box.create(secret_refs=REFS))["id"])["secrets"] == {"TOKEN": VALUE}


async def test_a_pending_create_keeps_the_names_and_reads_the_values_again(
    state_dir: Path, machine: Machine, kept: Kept
) -> None:
    machine.hold_ready = asyncio.Event()
    async with running(state_dir, machine, spare_seconds=0.0) as box:
        made = await box.create(wait_seconds=0.05, secret_refs=REFS, secrets={"OWN": "own"})
        assert made["status"] == "PENDING"
        seal = Seal(box.gateway.tokens.pending_keys)
        [(sandbox, secrets)] = PendingStore(state_dir / "pending", seal=seal).load()
        assert (sandbox.id, secrets) == (made["id"], {"OWN": "own"})
    for sidecar in list(machine.sidecars.values()):
        await sidecar.close()
    machine.sidecars.clear()
    machine.instances.clear()
    machine.hold_ready = None
    kept.put("rotated")
    away = kept.root.rename(kept.root.with_name("away"))
    async with running(state_dir, machine) as box:
        # Its caller has the id: it waits for the secrets, without a slot.
        waiting = box.gateway.directory.get(made["id"])
        assert waiting is not None
        await until(lambda: box.gateway.lifecycle.bringup.unread(made["id"]))
        assert box.gateway.supply.waiting == 0
        shown = (await box.client.get(f"{API}/sandbox/{made['id']}")).json()
        assert (shown["status"], "cannot be read" in shown["pendingMessage"]) == ("PENDING", True)
        away.rename(kept.root)
        await until(lambda: waiting.status == "RUNNING")
        assert claimed(machine, made["id"])["secrets"] == {"OWN": "own", "TOKEN": "rotated"}


async def test_one_that_is_deleted_while_it_waits_for_secrets_stays_deleted(
    state_dir: Path, machine: Machine, kept: Kept
) -> None:
    machine.hold_ready = asyncio.Event()
    async with running(state_dir, machine, spare_seconds=0.0) as box:
        made = await box.create(wait_seconds=0.05, secret_refs=REFS)
    for sidecar in list(machine.sidecars.values()):
        await sidecar.close()
    machine.sidecars.clear()
    machine.instances.clear()
    machine.hold_ready = None
    kept.root.rename(kept.root.with_name("away"))
    async with running(state_dir, machine) as box:
        await until(lambda: box.gateway.lifecycle.bringup.unread(made["id"]))
        path = f"{API}/sandbox/{made['id']}"
        assert (await box.client.delete(path)).status_code == 200
        await until(lambda: not box.gateway.lifecycle.creates.brings_up(made["id"]))
        assert (await box.client.get(path)).json()["verdict"] == "deleted"
        assert machine.claimed() == []


async def test_one_that_will_not_wait_is_refused_as_any_other(
    state_dir: Path, machine: Machine, kept: Kept
) -> None:
    """It has no place in the queue while its secrets are read: without one it must not be PENDING."""
    machine.hold_ready = asyncio.Event()
    body = {"docker_image": "host", "secret_refs": REFS, "wait_seconds": 0}
    async with running(state_dir, machine, max_waiting=1, max_starts=1) as box:
        waiting = asyncio.create_task(box.create())
        await until(lambda: box.gateway.supply.waiting == 1)
        full = await box.client.post(f"{API}/sandbox", json=body)
        assert (full.status_code, full.headers["x-sandlot-queue-position"]) == (503, "2"), full.text
        machine.hold_ready.set()
        await waiting
        kept.root.rename(kept.root.with_name("away"))
        unread = await box.client.post(f"{API}/sandbox", json=body)
        assert (unread.status_code, "cannot be read" in unread.text) == (503, True), unread.text


async def test_one_that_is_refused_is_no_create_but_reads_cost_their_rate(
    state_dir: Path, tmp_path: Path, machine: Machine, kept: Kept
) -> None:
    """None is a cold start that failed. With what it took from the rate again, reads would have no limit."""
    quotas = tmp_path / "quotas.json"
    quotas.write_text(json.dumps({"alpha": {"creates_per_second": 0.001, "creates_burst": 2}}))
    async with running(state_dir, machine, quotas_file=quotas) as box:
        for _ in range(3):
            machine.fail_launch = [BackendError("no such", field="image")]
            assert (await refused(box, {})).status_code == 422
        for _ in range(2):
            answer = await refused(box, {"TOKEN": {"secret": "none", "key": "token"}})
            assert answer.status_code == 422, answer.text
        assert (await refused(box, {})).status_code == 429
        text = await box.metrics()
        assert 'sandlot_creates_total{outcome="bad_request",source="none"} 5.0' in text
        assert 'sandlot_creates_total{outcome="failed",source="cold"} 0.0' in text


async def test_a_keyed_retry_gets_the_same_sandbox(state_dir: Path, machine: Machine, kept: Kept) -> None:
    async with running(state_dir, machine) as box:
        made = await box.create(secret_refs=REFS, idempotency_key="k")
        shutil.rmtree(kept.root)
        assert (await box.create(secret_refs=REFS, idempotency_key="k"))["id"] == made["id"]
        other = await box.client.get(f"{API}/sandbox", headers=box.as_tenant(OPERATOR))
        assert made["id"] not in other.text
