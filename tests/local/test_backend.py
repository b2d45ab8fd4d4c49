"""The local backend with real sidecars: start, limits, end, many at once."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from pathlib import Path

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.backends.local.lock import InUse
from sandlot_gateway.core.backend import BackendError, Unavailable

from tests.local.conftest import NEEDS_ROOT, SMALL, Machine, pid_of
from tests.waiting import SECONDS

pytestmark = NEEDS_ROOT


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
    # A sidecar that is slow to end is killed, and tells of no end.
    async with machine.gateway(end_grace=SECONDS) as gateway:
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
            await gateway.backend.destroy_all(timeout=60)
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
        await gateway.backend.destroy_all(timeout=60)


async def test_a_start_that_fails_says_why(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        instance = await gateway.backend.launch(Template("host", memory=1))
        await gateway.until(lambda: instance.id in gateway.lost or instance.id in gateway.ended)
        await gateway.backend.destroy(instance.id)
        assert machine.left() == []


async def test_two_gateways_cannot_share_a_state_directory(machine: Machine) -> None:
    async with machine.gateway():
        with pytest.raises(InUse, match=f"pid {os.getpid()}"):
            await machine.gateway().backend.start(machine.gateways[0])


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
        await gateway.backend.destroy_all(timeout=60)


async def test_bad_templates_are_refused_with_their_field(machine: Machine) -> None:
    async with machine.gateway(max_instances=1) as gateway:
        for template, field in (
            (Template("/no/such.tar"), "docker_image"),
            (Template("host", runtime_class="gvisor"), "runtime_class"),
        ):
            with pytest.raises(BackendError) as caught:
                await gateway.backend.launch(template)
            assert caught.value.field == field
        await gateway.backend.launch(SMALL)
        with pytest.raises(Unavailable, match="limit"):
            await gateway.backend.launch(SMALL)
        await gateway.backend.destroy_all(timeout=60)
        assert machine.left() == []


async def test_a_caller_that_goes_away_leaves_no_process(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        for delay in (0.0, 0.001, 0.004):
            task = asyncio.create_task(gateway.backend.launch(SMALL))
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await gateway.backend.destroy_all(timeout=60)
            assert machine.left() == []


@pytest.mark.timeout(300)
async def test_twenty_sandboxes_at_once(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        began = time.monotonic()
        instances = await asyncio.gather(*(gateway.backend.launch(SMALL) for _ in range(20)))
        for instance in instances:
            await gateway.until_ready(instance)
        print(f"20 ready in {time.monotonic() - began:.2f} s")
        tokens = await asyncio.gather(*(gateway.claim(instance) for instance in instances))
        results = await asyncio.gather(
            *(
                gateway.run(instance, token, "echo $((6*7))")
                for instance, token in zip(instances, tokens, strict=True)
            )
        )
        assert {result["stdout"] for result in results} == {"42\n"}
        began = time.monotonic()
        await gateway.backend.destroy_all(timeout=60)
        print(f"20 gone in {time.monotonic() - began:.2f} s")
        assert machine.left() == []
