"""What tinker-cookbook's recipes do with a sandbox: its interface, its exceptions, and the factory for harbor tasks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import sandlot
from lost import kill_commands, kill_sidecar
from sandlot.integrations.tinker_cookbook import SandlotSandbox, sandbox_factory
from tinker_cookbook.exceptions import SandboxError
from tinker_cookbook.sandbox import SandboxInterface, SandboxTerminatedError

TASK = Path("task/environment")
CREATE = {"labels": ["tinker"], "memory": "256MiB"}


async def ends_of_the_code_are_results() -> None:
    box = await sandbox_factory(**CREATE)(TASK, 600)
    assert isinstance(box, SandboxInterface)
    await box.send_heartbeat()
    ran = await box.run_command("pwd; echo no >&2; exit 3", workdir="/tmp")
    assert (ran.stdout, ran.stderr, ran.exit_code, ran.metrics["verdict"]) == ("/tmp\n", "no\n", 3, "exited")
    assert (await box.run_command("sleep 60", timeout=1)).metrics["verdict"] == "timeout"
    full = await box.run_command("python3 -c 'bytearray(1 << 30)'")
    assert (full.exit_code, full.metrics["verdict"]) == (137, "oom")
    assert (await box.run_command("echo 12345", max_output_bytes=3)).stdout == "123"
    assert (await box.run_command("true", workdir="/no/such/place")).exit_code == -1
    assert (await box.write_file("/task/run.sh", "#!/bin/sh\necho ran", executable=True)).exit_code == 0
    assert (await box.run_command("/task/run.sh")).stdout == "ran\n"
    assert (await box.read_file("/task/run.sh", max_bytes=9)).stdout == "#!/bin/sh"
    assert (await box.read_file("/no/such/file")).exit_code == 1
    await box.cleanup()
    try:
        raise AssertionError(await box.run_command("true"))
    except SandboxTerminatedError:
        pass


async def a_loss_is_terminated(*, of_sandbox: bool) -> None:
    box = await SandlotSandbox.create("host", **CREATE)
    running = asyncio.create_task(box.run_command("echo > /tmp/begun; exec -a lost-tinker sleep 600"))
    while (await box.read_file("/tmp/begun")).exit_code:
        pass
    if of_sandbox:
        kill_sidecar("lost-tinker")
    else:
        kill_commands(box.sandbox_id)
    try:
        raise AssertionError(await running)
    except SandboxTerminatedError as error:
        assert isinstance(error.__cause__, sandlot.SandboxLost)
        assert error.__cause__.infrastructure
    await box.cleanup()


async def a_refused_start_is_typed() -> None:
    try:
        await SandlotSandbox.create("/no/such/archive.tar", **CREATE)
        raise AssertionError("it started")
    except (SandboxError, sandlot.BadRequest) as error:
        assert "/no/such/archive.tar" in str(error)


TASK.mkdir(parents=True)
Path("task/task.toml").write_text('[environment]\ndocker_image = "host"\n')
asyncio.run(ends_of_the_code_are_results())
asyncio.run(a_loss_is_terminated(of_sandbox=False))
asyncio.run(a_loss_is_terminated(of_sandbox=True))
asyncio.run(a_refused_start_is_typed())
Path("task/task.toml").write_text("[environment]\n")
try:
    asyncio.run(sandbox_factory()(TASK, 600))
    raise AssertionError("it found an image")
except ValueError as error:
    assert "environment.docker_image" in str(error)
assert sandlot.Sandbox.list(labels=["tinker"]) == []
