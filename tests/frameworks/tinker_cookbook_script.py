"""What tinker-cookbook's recipes do with a sandbox: its interface, its exceptions, the factory for harbor tasks, and the
grader, a file of its wheel. What is loaded in the place of two packages, which import PyTorch, is only names of types.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
import sysconfig
import types
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import sandlot
from ended_box import EndedBox
from lost import kill_commands, kill_sidecar
from sandlot.integrations import tinker_cookbook
from sandlot.integrations.tinker_cookbook import SandlotSandbox, sandbox_factory
from tinker_cookbook.exceptions import SandboxError
from tinker_cookbook.sandbox import SandboxInterface, SandboxTerminatedError

renderers = types.ModuleType("tinker_cookbook.renderers.base")
renderers.Message = dict
tool_use = types.ModuleType("tinker_cookbook.tool_use")
tool_use.ToolResult = dict
tool_use.simple_tool_result = tool_use.tool = lambda given: given
sys.modules |= {"tinker_cookbook.renderers.base": renderers, "tinker_cookbook.tool_use": tool_use}
FILE = os.path.join(sysconfig.get_path("purelib"), "tinker_cookbook/recipes/harbor_rl/harbor_tools.py")
spec = importlib.util.spec_from_file_location("harbor_tools", FILE)
assert spec is not None
assert spec.loader is not None
harbor_tools = importlib.util.module_from_spec(spec)
sys.modules["harbor_tools"] = harbor_tools
spec.loader.exec_module(harbor_tools)

TASK, TESTS = Path("task/environment"), Path("task/tests")
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
    with suppress(SandboxTerminatedError):
        raise AssertionError(await box.run_command("true"))
    await box.cleanup()


async def an_end_by_the_code_is_a_result() -> None:
    box = SandlotSandbox(cast("sandlot.AsyncSandbox", EndedBox("oom")))
    ran = await box.run_command("true")
    assert (ran.exit_code, ran.metrics) == (137, {"verdict": "oom"}), ran
    assert "oom" in ran.stderr
    assert [(await box.read_file("/a")).exit_code, (await box.write_file("/a", "")).exit_code] == [1, 1]
    try:
        raise AssertionError(await box.send_heartbeat())
    except SandboxTerminatedError as error:
        assert isinstance(error.__cause__, sandlot.SandboxLost)
    assert await graded(box) == (0.0, {"reward": 0.0, "test_passed": 0.0})
    assert box.lost is None


class Unwell:
    """A sandbox whose calls end as given: by an exception, never (`None`), at once (`True`), or by their limit (`False`)."""

    id = "sb-unwell"

    def __init__(self, *, read: Exception | None, command: Exception | bool | None) -> None:
        self.files = self
        self._read, self._command = read, command

    async def read(self, *_: object, **__: object) -> None:
        await self._end(self._read)

    async def exec(self, *_: object, timeout: float, **__: object) -> None:
        if self._command is False:
            await asyncio.sleep(timeout)
        else:
            await self._end(self._command)

    async def _end(self, how: Exception | bool | None) -> None:
        if how is None:
            await asyncio.Event().wait()
        if isinstance(how, Exception):
            raise how


def unwell(*, read: Exception | None = None, command: Exception | bool | None = None) -> SandlotSandbox:
    return SandlotSandbox(cast("sandlot.AsyncSandbox", Unwell(read=read, command=command)))


async def a_file_call_that_takes_too_long() -> None:
    tinker_cookbook.PROBE_SECONDS = 0.1
    box = unwell(command=True)  # a FIFO, say
    assert (await box.read_file("/a", timeout=0)).exit_code == -1
    assert box.lost is None
    box = unwell(command=False)  # and with another `true`
    assert (await box.read_file("/a", timeout=0)).exit_code == -1
    assert box.lost is None
    for silent in (None, sandlot.ConnectionFailed("no"), sandlot.Busy("full")):
        box = unwell(command=silent)
        try:
            raise AssertionError(await box.read_file("/a", timeout=0))
        except SandboxError as error:
            assert box.lost is error
    box = unwell(command=sandlot.SandboxLost("it has ended", verdict="oom"))
    assert (await box.read_file("/a", timeout=0)).exit_code == 1
    assert box.lost is None


async def what_is_no_result_is_a_loss() -> None:
    for error in (sandlot.AuthError("no"), sandlot.OpExpired("no"), sandlot.Conflict("no")):
        box = unwell(read=error, command=error)
        try:
            raise AssertionError(await box.run_command("true"))
        except SandboxError as lost:
            assert box.lost is lost
        with suppress(SandboxError):
            raise AssertionError(await box.read_file("/a"))
    box = unwell(command=sandlot.ConnectionFailed("no"))
    try:
        raise AssertionError(await box.send_heartbeat())
    except SandboxError:
        assert box.lost is None  # a later command may have an answer


async def graded(box: SandlotSandbox) -> Any:
    return await harbor_tools.HarborReward(TESTS, box)([])


async def a_loss_while_grading_is_kept() -> None:
    box = await SandlotSandbox.create("host", **CREATE)
    (TESTS / "test.sh").write_text("echo 1 > /logs/verifier/reward.txt")
    assert await graded(box) == (1.0, {"reward": 1.0, "test_passed": 1.0})
    (TESTS / "test.sh").write_text("exec -a lost-grading sleep 600")
    grading = asyncio.create_task(graded(box))
    await asyncio.to_thread(kill_sidecar, "lost-grading")
    assert (await grading)[1]["grading_error"] == 1.0
    assert isinstance(box.lost, SandboxTerminatedError)
    assert isinstance(box.lost.__cause__, sandlot.SandboxLost)
    assert box.lost.__cause__.infrastructure
    await box.cleanup()


async def a_refused_start_is_typed() -> None:
    try:
        await SandlotSandbox.create("/no/such/archive.tar", **CREATE)
        raise AssertionError("it started")
    except (SandboxError, sandlot.BadRequest) as error:
        assert "/no/such/archive.tar" in str(error)


TASK.mkdir(parents=True)
TESTS.mkdir()
Path("task/task.toml").write_text('[environment]\ndocker_image = "host"\n')
asyncio.run(ends_of_the_code_are_results())
asyncio.run(a_loss_is_terminated(of_sandbox=False))
asyncio.run(a_loss_is_terminated(of_sandbox=True))
asyncio.run(an_end_by_the_code_is_a_result())
asyncio.run(a_file_call_that_takes_too_long())
asyncio.run(what_is_no_result_is_a_loss())
asyncio.run(a_loss_while_grading_is_kept())
asyncio.run(a_refused_start_is_typed())
Path("task/task.toml").write_text("[environment]\n")
try:
    asyncio.run(sandbox_factory()(TASK, 600))
    raise AssertionError("it found an image")
except ValueError as error:
    assert "environment.docker_image" in str(error)
assert sandlot.Sandbox.list(labels=["tinker"]) == []
