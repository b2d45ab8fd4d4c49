"""The local backend with real sidecars: start, death, restart of the gateway, limits, images, many at once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import sys
import time
from pathlib import Path

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.backends.local.lock import InUse
from sandlot_gateway.core.backend import BackendError, Unavailable

from tests.local.conftest import Machine

HOST = Template("host")
SMALL = Template("host", cpu=1.0, memory=256 << 20, pids=64)
root = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces and cgroups"),
]
pytestmark = root


def pid_of(machine: Machine, instance_id: str) -> int:
    record = json.loads((machine.state_dir / "instances" / instance_id / "instance.json").read_bytes())
    return int(record["process"]["pid"])


def descriptors(pid: int) -> list[str]:
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:
            continue
    return found


def environment_names(pid: int) -> set[str]:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return {pair.partition(b"=")[0].decode() for pair in pairs if pair}


async def test_a_started_sandbox_runs_commands_and_its_end_leaves_nothing(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        instance = await gateway.backend.launch(SMALL)
        await gateway.until_ready(instance)
        assert gateway.backend.instance(instance.id) is instance
        token = await gateway.claim(instance)
        result = await gateway.run(instance, token, "python3 -c 'print(6*7)'")
        assert (result["stdout"], result["exit_code"]) == ("42\n", 0)
        stats = gateway.backend.stats()
        assert stats["instances"] == 1
        assert stats["usage"][instance.id]["memory"] > 0
        assert stats["usage"][instance.id]["pids"] > 0
        await asyncio.gather(*(gateway.backend.destroy(instance.id) for _ in range(3)))
        await gateway.backend.destroy(instance.id)
        assert gateway.backend.instance(instance.id) is None
        assert gateway.lost == {}
        assert gateway.ended[instance.id]["verdict"] == "deleted"
        assert machine.left() == []


async def test_the_sidecar_gets_nothing_of_the_gateway(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDLOT_API_KEYS", "very-secret")
    inherited = os.open("/dev/zero", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    try:
        async with machine.gateway() as gateway:
            instance = await gateway.backend.launch(SMALL)
            await gateway.until_ready(instance)
            directory = machine.state_dir / "instances" / instance.id
            assert not (directory / "config.json").exists()
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
            assert instance.token not in (directory / "instance.json").read_text()
            pid = pid_of(machine, instance.id)
            assert os.getsid(pid) == pid
            names = environment_names(pid)
            assert names == {"PATH", "LANG", "PYTHONPATH", "PYTHONPYCACHEPREFIX"}
            open_files = descriptors(pid)
            assert not [name for name in open_files if "/dev/zero" in name or name.endswith("/lock")]
            token = await gateway.claim(instance)
            shown = await gateway.run(
                instance, token, f"ls -A {machine.state_dir}; cat {machine.state_dir}/lock"
            )
            assert shown["stdout"] == ""
            await gateway.backend.destroy_all()
    finally:
        os.close(inherited)


async def test_the_sidecar_is_loaded_from_byte_code(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        times = []
        for _ in range(2):
            instance = await gateway.backend.launch(SMALL)
            await gateway.until_ready(instance)
            compiled = (machine.directory / "cache" / "bytecode").rglob("*.pyc")
            times.append({path: path.stat().st_mtime_ns for path in compiled})
        assert any("sandlot_sidecar" in str(path) for path in times[0])
        assert times[0] == times[1]
        await gateway.backend.destroy_all()


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


async def test_a_start_that_fails_says_why(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        instance = await gateway.backend.launch(Template("host", memory=1))
        await gateway.until(lambda: instance.id in gateway.lost or instance.id in gateway.ended)
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
        await second.backend.destroy_all()


KILLED_GATEWAY = """
import asyncio, json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.local.gateway import Gateway
from sandlot_gateway.core.backend import Template
async def main():
    gateway = await Gateway(Path(sys.argv[1])).__aenter__()
    instances = [await gateway.backend.launch(Template("host", memory=256 << 20)) for _ in range(2)]
    for instance in instances:
        await gateway.until_ready(instance)
    # A third one in the middle of its start.
    task = asyncio.ensure_future(gateway.backend.launch(Template("host", memory=256 << 20)))
    await asyncio.sleep(0)
    print(json.dumps([instance.id for instance in instances]), flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def kill_a_gateway(machine: Machine) -> list[str]:
    here = str(Path(__file__).parents[2])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED_GATEWAY, str(machine.directory), here), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    ids = json.loads(await asyncio.wait_for(process.stdout.readline(), 30))
    process.kill()
    await process.wait()
    return ids


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
        await gateway.backend.destroy_all()


async def test_a_directory_removed_under_a_sidecar_does_not_hide_it(machine: Machine) -> None:
    (first, second) = await kill_a_gateway(machine)
    for name in (first, second):
        directory = machine.state_dir / "instances" / name
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
    async with machine.gateway() as gateway:
        assert {first, second} <= gateway.lost.keys()
        await gateway.backend.destroy_all()


async def test_two_gateways_cannot_share_a_state_directory(machine: Machine) -> None:
    async with machine.gateway():
        with pytest.raises(InUse, match=f"pid {os.getpid()}"):
            await machine.gateway().backend.start(machine.gateways[0])


async def test_a_hanging_sidecar_is_killed(machine: Machine) -> None:
    async with machine.gateway(end_grace=0.2) as gateway:
        instance = await gateway.backend.launch(SMALL)
        await gateway.until_ready(instance)
        os.kill(pid_of(machine, instance.id), signal.SIGSTOP)
        await gateway.backend.destroy(instance.id)
        assert machine.left() == []


async def test_a_hanging_sidecar_found_at_start_is_cleared_away(machine: Machine) -> None:
    async with machine.gateway() as first:
        instance = await first.backend.launch(SMALL)
        await first.until_ready(instance)
        os.kill(pid_of(machine, instance.id), signal.SIGSTOP)
    async with machine.gateway(patience=0.3) as second:
        assert "does not answer" in second.lost[instance.id][1]


async def test_limits_are_enforced_and_the_sandbox_lives_on(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        instance = await gateway.backend.launch(SMALL)
        await gateway.until_ready(instance)
        token = await gateway.claim(instance)
        eater = await gateway.run(instance, token, "python3 -c 'x = bytearray(1 << 30); print(len(x))'")
        assert eater["verdict"] == "oom"
        bomb = await gateway.run(
            instance, token, "bomb() { bomb | bomb & }; bomb; sleep 0.5; exit 3", timeout=20
        )
        assert bomb["verdict"] in ("pids_limit", "exited", "timeout")
        assert (await gateway.run(instance, token, "echo usable"))["stdout"] == "usable\n"
        began = time.monotonic()
        busy = await gateway.run(
            instance, token, "for i in 1 2 3 4; do (while :; do :; done) & done; sleep 1; kill 0"
        )
        assert busy["usage"]["cpu"] < 1.4 * (time.monotonic() - began) + 0.3
        await gateway.backend.destroy_all()


async def test_bad_templates_are_refused_with_their_field(machine: Machine) -> None:
    async with machine.gateway(max_instances=1) as gateway:
        for template, field in (
            (Template("/no/such.tar"), "docker_image"),
            (Template("host", gpu_count=1), "gpu_count"),
            (Template("host", runtime_class="gvisor"), "runtime_class"),
        ):
            with pytest.raises(BackendError) as caught:
                await gateway.backend.launch(template)
            assert caught.value.field == field
        await gateway.backend.launch(SMALL)
        with pytest.raises(Unavailable, match="limit"):
            await gateway.backend.launch(SMALL)
        await gateway.backend.destroy_all()
        assert machine.left() == []


async def test_a_caller_that_goes_away_leaves_no_process(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        for delay in (0.0, 0.001, 0.004):
            task = asyncio.create_task(gateway.backend.launch(SMALL))
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await gateway.backend.destroy_all()
            assert machine.left() == []


@pytest.mark.slow
async def test_fifty_sandboxes_at_once(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        began = time.monotonic()
        instances = await asyncio.gather(*(gateway.backend.launch(SMALL) for _ in range(50)))
        for instance in instances:
            await gateway.until_ready(instance)
        print(f"50 ready in {time.monotonic() - began:.2f} s")
        tokens = await asyncio.gather(*(gateway.claim(instance) for instance in instances))
        results = await asyncio.gather(
            *(
                gateway.run(instance, token, "echo $((6*7))")
                for instance, token in zip(instances, tokens, strict=True)
            )
        )
        assert {result["stdout"] for result in results} == {"42\n"}
        began = time.monotonic()
        await gateway.backend.destroy_all()
        print(f"50 gone in {time.monotonic() - began:.2f} s")
        assert machine.left() == []
