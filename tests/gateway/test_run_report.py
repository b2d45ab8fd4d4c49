"""The report of a run over the control routes: which of its ends are to be masked, what it used, and whose it is."""

from __future__ import annotations

from pathlib import Path

from sandlot_contract.ids import SandboxId
from sandlot_gateway.control.run_report import starts_of
from sandlot_gateway.sandboxes import Sandbox, Spec

from tests.gateway.conftest import Running, running
from tests.gateway.machine import Machine
from tests.gateway.test_run_leases import RUNS, begin, create
from tests.waiting import until


async def test_a_report_tells_samples_from_what_the_infrastructure_lost(box: Running) -> None:
    await begin(box, "report", grace_seconds=600)
    lost, deleted = [(await create(box, "report")).json()["id"] for _ in range(2)]
    assert (await box.client.delete(f"/api/v1/sandbox/{deleted}")).status_code == 200
    await begin(box, "report", "two", grace_seconds=600, take_over=True, end_sandboxes=True)

    async def is_over() -> bool:
        return (await box.client.get(f"/api/v1/sandbox/{lost}")).json()["verdict"] == "run_lost"

    await until(is_over)
    await create(box, "report")
    answer = await box.client.get(f"{RUNS}/report/report")
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert report["run"]["verdicts"] == {"run_lost": 1, "deleted": 1}
    assert report["run"]["sandboxes"] == {"ERROR": 1, "TERMINATED": 1, "RUNNING": 1}
    assert report["ends"] == {"run_lost": 1, "deleted": 1}
    assert report["masked"] == {"run_lost": 1}
    assert report["usage"]["sandboxes"] == report["starts"]["sandboxes"] == 3
    assert report["starts"]["seconds"] >= report["starts"]["longest_seconds"] >= 0
    assert (report["commands"]["count"], report["commands"]["silent_gateways"]) == (0, 0)


async def test_ends_count_beyond_the_records(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine, record_limit=1) as box:
        await begin(box, "report-long", grace_seconds=600)
        for _ in range(3):
            made = (await create(box, "report-long")).json()
            assert (await box.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        report = (await box.client.get(f"{RUNS}/report-long/report")).json()
        assert report["run"]["verdicts"] == {"deleted": 1}
        assert report["ends"] == {"deleted": 3}


async def test_a_report_is_its_tenants_alone(box: Running) -> None:
    await begin(box, "report-mine", grace_seconds=600)
    theirs = await box.client.get(f"{RUNS}/report-mine/report", headers=box.as_tenant("key-b"))
    assert (theirs.status_code, theirs.json()["error"]) == (404, "run_unknown")
    # A gateway's own question, from anybody else.
    asked = await box.client.get("/internal/runs/report-mine/counts", params={"tenant": "alpha"})
    assert asked.status_code == 401


def test_starts_are_measured_from_creates_until_they_run() -> None:
    def of(begin: float | None, queued: float) -> Sandbox:
        spec = Spec(name="n", image="host")
        times = {"created_at": 10.0, "updated_at": 10.0, "started_at": begin}
        return Sandbox(id=SandboxId("sbx-1"), tenant="t", spec=spec, queued=queued, **times)

    # The last one's start has the clock of another machine.
    assert starts_of([of(12.5, 1.5), of(None, 4.0), of(11.0, 0.25), of(9.0, 0.0)]) == {
        "sandboxes": 3,
        "seconds": 3.5,
        "longest_seconds": 2.5,
        "queued_seconds": 1.75,
    }
    assert starts_of([])["longest_seconds"] == 0.0
