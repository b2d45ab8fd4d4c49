"""One claim: what it tells the sidecar, which sidecars it passes over, and when it is refused or given up."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import pytest
from sandlot_gateway.core.slot import Phase
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.egress import Egress
from sandlot_gateway.engine.claim_failures import ClaimRefused, NoSidecar
from sandlot_gateway.group_membership import GroupServices

from tests.gateway.machine import Machine
from tests.gateway.replica import TEMPLATE, TOKENS, Replica, new_sandbox
from tests.gateway.sidecars import sidecars
from tests.waiting import until


async def test_a_stale_generation_is_left_alone(machine: Machine) -> None:
    pool = HttpPool()
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (first, second):
        replica = Replica(machine, pool)
        replica.offer(first)
        replica.offer(second)
        first._reset(keep=False)
        sandbox = await replica.create()
        assert sandbox.instance_id == second.instance_id
        assert replica.outcomes == ["stale", "claimed"]
        assert replica.discarded == []
        await replica.supply.close()
    await pool.close()


async def test_one_that_another_tenant_used_is_left_to_that_tenant(machine: Machine) -> None:
    """Through another gateway: here it is known by the refusal alone."""
    pool = HttpPool()
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (used, good):
        replica = Replica(machine, pool)
        replica.offer(used)
        replica.offer(good)
        used.bound_to, used.uses = "another", 1
        sandbox = await replica.create()
        assert sandbox.instance_id == good.instance_id
        assert replica.outcomes == ["bound", "claimed"]
        assert replica.discarded == []
        assert replica.supply.slots.bound_to(used.instance_id) == "another"
        assert replica.phase(used) is Phase.WARM
        assert replica.supply.slots.bound_to(good.instance_id) == "t"
        await replica.supply.close()
    await pool.close()


async def test_an_ended_or_foreign_sidecar_is_discarded(machine: Machine) -> None:
    pool = HttpPool()
    async with sidecars(3, Path(machine.directory), token=TOKENS.instance) as (ended, foreign, good):
        replica = Replica(machine, pool)
        for sidecar in (ended, foreign, good):
            replica.offer(sidecar)
        ended.phase = "ended"
        foreign.token = "another"
        sandbox = await replica.create()
        assert sandbox.instance_id == good.instance_id
        assert {gone.id for gone in replica.discarded} == {ended.instance_id, foreign.instance_id}
        await replica.supply.close()
    await pool.close()


async def test_an_older_sidecar_is_not_trusted_with_a_policy(machine: Machine) -> None:
    pool = HttpPool()
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (older, good):
        replica = Replica(machine, pool)
        older.holds_policies = False
        replica.offer(older)
        replica.offer(good)
        sandbox = await replica.create(egress=Egress(allowlist=["example.org", "10.0.0.0/8:443"]))
        assert sandbox.instance_id == good.instance_id
        assert [gone.id for gone in replica.discarded] == [older.instance_id]
        assert replica.outcomes == ["gone", "claimed"]
        assert good.claim is not None
        assert good.claim["egress"] == {
            "policy": {"allowlist": ["example.org", "10.0.0.0/8:443"], "denylist": None},
            "allow": True,
            "rules": [["example.org", 0], [10 << 24, 8, 443, 443]],
        }
        await replica.supply.close()
    await pool.close()


async def test_who_finds_only_older_sidecars_for_a_policy_is_told_so(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (older,):
        older.holds_policies = False
        one = replica(older, max_failures=1)
        with pytest.raises(NoSidecar, match=r"^its sidecar is older, and holds no policy of a create$"):
            await one.create(egress=Egress(allowlist=["example.org"]))


async def test_an_older_sidecar_is_not_trusted_with_a_user(replica, machine: Machine) -> None:
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (older, good):
        older.knows_users = False
        one = replica(older, good)
        sandbox = new_sandbox(user="app")
        await one.claim(sandbox)
        assert sandbox.instance_id == good.instance_id
        assert [gone.id for gone in one.discarded] == [older.instance_id]


async def test_an_older_sidecar_is_not_trusted_with_services(replica, machine: Machine) -> None:
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (older, good):
        older.links_services = False
        one = replica(older, good)
        sandbox = new_sandbox(network="none", services=GroupServices({"db": [5432], "web": []}, own="web"))
        await one.claim(sandbox)
        assert sandbox.instance_id == good.instance_id
        assert good.claim is not None
        assert good.claim["services"] == [
            {"name": "db", "address": "127.83.0.1", "ports": [5432]},
            {"name": "web", "address": "127.0.0.1", "ports": []},
        ]


async def test_a_claim_tells_the_sidecar_everything_of_the_sandbox(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        sidecar.generation = 3
        one = replica(sidecar)
        sandbox = new_sandbox(
            env={"A": "1"},
            network="none",
            timeout=60.0,
            idle_timeout=5.0,
            workdir="/w",
            user="app",
            start_command=["serve"],
            stop_signal=3,
            stop_grace=2.5,
            checkpoint="ck-1",
        )
        claimed = await one.claim(sandbox, KEY="secret")
        assert claimed.instance.id == sandbox.instance_id == sidecar.instance_id
        assert claimed.state == sidecar.state()
        assert claimed.token == TOKENS.sandbox(sidecar.instance_id, 3, sandbox.id)
        template = TEMPLATE
        assert sidecar.claim == {
            "sandbox_id": sandbox.id,
            "token": claimed.token,
            "tenant": "t",
            "env": {"A": "1"},
            "secrets": {"KEY": "secret"},
            # Of the instance, which another create of its template may have been made for.
            "limits": {
                "cpu": template.cpu,
                "memory": template.memory,
                "pids": template.pids,
                "disk": template.disk,
            },
            "network": "none",
            "egress": None,
            "timeout": 60.0,
            "idle_timeout": 5.0,
            "workdir": "/w",
            "user": "app",
            "start_command": ["serve"],
            "stop_signal": 3,
            "stop_grace": 2.5,
            "meta": sandbox.meta(),
            "restore": True,
            "image": None,
            "services": None,
            "generation": 3,
        }
        assert (sandbox.generation, sandbox.pool_hit, sandbox.notes) == (3, True, ["a stub"])
        assert one.outcomes == ["claimed"]


async def test_a_claim_that_every_sidecar_would_refuse_is_told_with_its_field(
    replica, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        refusal = {"error": "bad_request", "message": "no such directory", "field": "workdir"}
        sidecar.before_claim = lambda claim: (400, refusal) if claim["workdir"] else None
        one = replica(sidecar)
        with caplog.at_level(logging.INFO), pytest.raises(ClaimRefused, match="no such directory") as caught:
            await one.claim(new_sandbox(workdir="/none"))
        assert caught.value.field == "workdir"
        assert one.discarded == []
        assert one.phase(sidecar) is Phase.WARM
        told = [record for record in caplog.records if record.name == "sandlot_gateway.engine.claims"]
        assert [record.getMessage() for record in told] == [
            "a claim went to another instance: no such directory"
        ]
        assert (told[0].instance, told[0].outcome) == (sidecar.instance_id, "refused")
        assert (await one.create()).instance_id == sidecar.instance_id  # it is ready for the next one


@pytest.mark.parametrize("failures", [1, 3])
async def test_a_sandbox_that_no_sidecar_answers_is_given_up_after_so_many(
    replica, machine: Machine, failures: int
) -> None:
    """Of these that another sandbox owns, or that are of another generation, none counts."""
    async with sidecars(5, Path(machine.directory), token=TOKENS.instance) as (taken, stale, *ended):
        one, other = replica(taken, stale, *ended, max_failures=failures), replica(taken)
        await other.create()
        stale._reset(keep=False)
        for sidecar in ended:
            sidecar.phase, sidecar.verdict = "ended", "oom"
        sandbox = new_sandbox()
        with pytest.raises(NoSidecar, match="ended"):
            await one.claim(sandbox)
        assert [gone.id for gone in one.discarded] == [sidecar.instance_id for sidecar in ended[:failures]]
        assert one.outcomes == ["taken", "stale"] + ["gone"] * failures
        assert sandbox.instance_id is None


async def test_of_two_claims_of_a_sandbox_the_later_one_counts_whatever_the_clock_says(
    replica, machine: Machine
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        sandbox = new_sandbox()
        sandbox.asked_at = before = time.time() + 3600.0
        await replica(sidecar).claim(sandbox)
        assert sandbox.asked_at == pytest.approx(before + 0.001, rel=0, abs=1e-5)


async def test_the_time_without_a_start_is_queued(replica, machine: Machine) -> None:
    now = asyncio.get_running_loop().time
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        one, sandbox, asked = replica(), new_sandbox(), now()
        ticket = one.claimer.ticket(sandbox, at_once=False)
        await until(lambda: now() > asked + 0.02)
        one.offer(sidecar)
        await one.claimer.claim(sandbox, secrets={}, ticket=ticket)
        assert sandbox.queued >= 0.01
        assert sandbox.start == 0.0
