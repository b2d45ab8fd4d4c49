"""Creates that name secrets by reference: what the claim gets, what callers are told, and that no value is anywhere else."""

from __future__ import annotations

import base64
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from sandlot_gateway.core.backend import BackendError

from tests.gateway.conftest import API, OPERATOR, Running, running
from tests.gateway.kept_secrets import REFS, VALUE, Kept, claimed, kept, refused
from tests.gateway.machine import Machine
from tests.gateway.warm_pool import warmed

__all__ = ["kept"]


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
