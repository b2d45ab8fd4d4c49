"""Sidecars and gateways that die, hang or are restarted: what is found, and what is cleared away."""

from __future__ import annotations

import os
import signal

from tests.local.conftest import NEEDS_ROOT, SMALL, Machine, pid_of
from tests.local.killed import kill_a_gateway
from tests.stopped import stop

pytestmark = NEEDS_ROOT


async def test_a_killed_sidecar_is_reported_and_cleared_away(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        instance = await gateway.backend.launch(SMALL)
        await gateway.until_ready(instance)
        token = await gateway.claim(instance)
        await gateway.run(instance, token, "sleep 1000 & setsid sleep 1001 & echo started")
        assert machine.cgroups(instance.id)
        os.kill(pid_of(machine, instance.id), signal.SIGKILL)
        await gateway.until(lambda: instance.id in gateway.lost)
        verdict, message = gateway.lost[instance.id]
        assert verdict == "sidecar_lost"
        assert "status -9" in message
        await gateway.backend.destroy(instance.id)
        assert machine.left() == []


async def test_a_restarted_gateway_finds_everything(machine: Machine) -> None:
    async with machine.gateway() as first:
        warm = await first.backend.launch(SMALL)
        claimed = await first.backend.launch(SMALL, pool="none")
        dead = await first.backend.launch(SMALL)
        for instance in (warm, claimed, dead):
            await first.until_ready(instance)
        token = await first.claim(claimed)
        await first.run(claimed, token, "echo kept > /tmp/file")
        dead_pid = pid_of(machine, dead.id)
    os.kill(dead_pid, signal.SIGKILL)
    async with machine.gateway() as second:
        assert {key: state["phase"] for key, state in second.found.items()} == {
            warm.id: "warm",
            claimed.id: "claimed",
        }
        assert second.lost[dead.id][0] == "sidecar_lost"
        found = second.backend.instance(claimed.id)
        assert found is not None
        assert (found.template, found.token, found.pool) == (SMALL, claimed.token, "none")
        assert (await second.run(found, token, "cat /tmp/file"))["stdout"] == "kept\n"
        # Not our child any more: its end is seen all the same.
        os.kill(pid_of(machine, claimed.id), signal.SIGKILL)
        await second.until(lambda: claimed.id in second.lost)
        await second.backend.destroy_all(timeout=60)


async def test_a_gateway_s_sigkill_loses_nothing_and_a_dead_sidecar_is_cleared_at_the_next_start(
    machine: Machine,
) -> None:
    ids = await kill_a_gateway(machine)
    os.kill(pid_of(machine, ids[0]), signal.SIGKILL)
    async with machine.gateway() as gateway:
        assert gateway.lost[ids[0]][0] == "sidecar_lost"
        assert gateway.found[ids[1]]["phase"] == "warm"
        assert machine.cgroups(ids[0]) == []
        instance = gateway.backend.instance(ids[1])
        assert instance is not None
        token = await gateway.claim(instance)
        assert (await gateway.run(instance, token, "echo alive"))["stdout"] == "alive\n"
        await gateway.backend.destroy_all(timeout=60)


async def test_a_directory_removed_under_a_sidecar_does_not_hide_it(machine: Machine) -> None:
    (first, second) = await kill_a_gateway(machine)
    for name in (first, second):
        directory = machine.state_dir / "instances" / name
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
    async with machine.gateway() as gateway:
        assert {first, second} <= gateway.lost.keys()
        await gateway.backend.destroy_all(timeout=60)


async def test_a_hanging_sidecar_is_killed(machine: Machine) -> None:
    async with machine.gateway(end_grace=0.2) as gateway:
        instance = await gateway.backend.launch(SMALL)
        await gateway.until_ready(instance)
        stop(pid_of(machine, instance.id))
        await gateway.backend.destroy(instance.id)
        assert machine.left() == []


async def test_a_hanging_sidecar_found_at_start_is_cleared_away(machine: Machine) -> None:
    async with machine.gateway() as first:
        instance = await first.backend.launch(SMALL)
        await first.until_ready(instance)
        stop(pid_of(machine, instance.id))
    async with machine.gateway(patience=0.3) as second:
        assert "does not answer" in second.lost[instance.id][1]
