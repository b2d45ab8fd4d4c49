"""Runs in NeMo Gym's environment: its public sandbox API, with the provider that it finds by its entry point."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import sandlot
from lost import kill_commands, kill_sidecar
from nemo_gym.sandbox import AsyncSandbox, SandboxCreateError, SandboxSpec, SandboxStatus, list_providers

IMAGE = "host"
COPY = Path("copies/script.py")
LABEL = "suite=nemo-gym"


def spec(**more: object) -> SandboxSpec:
    return SandboxSpec(image=IMAGE, metadata={"suite": "nemo-gym"}, **more)


async def ends_of_the_code_are_results() -> None:
    more = {"resources": {"cpu": 1, "memory_mib": 256}, "env": {"SEED": "7"}, "files": {"/task/a": "text"}}
    async with AsyncSandbox({"sandlot": {}}) as box:
        await box.start(spec(workdir="/tmp", ttl_s=600, ready_timeout_s=120, **more))
        assert await box.status() is SandboxStatus.RUNNING
        ran = await box.exec("cat /task/a; pwd; echo $SEED; echo no >&2; exit 3")
        assert (ran.stdout, ran.stderr, ran.return_code, ran.error_type) == ("text/tmp\n7\n", "no\n", 3, None)
        slow = await box.exec("echo begun; sleep 60", timeout_s=10)
        assert (slow.stdout, slow.error_type) == ("begun\n", "timeout")
        full = await box.exec("python3 -c 'bytearray(1 << 30)'")
        assert (full.return_code, full.error_type) == (137, "oom")
        nowhere = await box.exec("true", cwd="/no/such/place")
        assert (nowhere.return_code, nowhere.error_type) == (125, "start_failed")
        assert (await box.exec("id -un", user="nobody")).stdout == "nobody\n"
        await box.upload(__file__, "/task/deep/script.py")
        await box.download("/task/deep/script.py", COPY)
    assert await box.status() is SandboxStatus.STOPPED


async def a_loss_is_no_result(*, of_sandbox: bool) -> None:
    async with AsyncSandbox({"sandlot": {}}, spec()) as box:
        await box.start()
        running = asyncio.create_task(box.exec("echo > /tmp/begun; exec -a lost-nemo sleep 600"))
        while (await box.exec("cat /tmp/begun")).return_code:
            pass
        if of_sandbox:
            kill_sidecar("lost-nemo")
        else:
            kill_commands((await sandlot.AsyncSandbox.list(labels=[LABEL]))[0].id)
        try:
            raise AssertionError(await running)
        except sandlot.SandboxLost as error:
            assert error.infrastructure, error
        if of_sandbox:
            assert await box.status() in (SandboxStatus.ERROR, SandboxStatus.STOPPED)


async def a_refused_start_is_typed() -> None:
    try:
        await AsyncSandbox({"sandlot": {}}).start(
            SandboxSpec(image="/no/such/archive.tar", ready_timeout_s=30)
        )
    except (SandboxCreateError, sandlot.BadRequest) as error:
        assert "/no/such/archive.tar" in str(error)
    else:
        raise AssertionError("it started")
    try:
        AsyncSandbox({"sandlot": {"create": {"pol": "warm"}}})
    except ValueError as error:
        assert "create: unknown pol" in str(error)


async def a_cancelled_start_leaves_nothing() -> None:
    """NeMo Gym drops the handle of a sandbox when its start is cancelled during the upload of its files."""
    async with AsyncSandbox({"sandlot": {}}) as box:
        start = asyncio.create_task(box.start(spec(files={f"/task/{n}": "x" for n in range(500)})))
        while not (found := await sandlot.AsyncSandbox.list(labels=[LABEL])):
            pass
        started = await sandlot.AsyncSandbox.connect(found[0].id)
        while not await started.files.exists("/task/0"):
            pass
        start.cancel()
        await asyncio.wait((start,))
        assert start.cancelled()


async def the_configuration_of_the_page_names_the_provider(sandbox: dict[str, Any]) -> None:
    async with AsyncSandbox(sandbox, spec()) as box:
        await box.start()
        assert (await box.exec("echo named")).stdout == "named\n"


async def main(configured: dict[str, Any]) -> None:
    assert "sandlot" in list_providers()
    await the_configuration_of_the_page_names_the_provider(configured["sandbox"])
    await ends_of_the_code_are_results()
    await a_loss_is_no_result(of_sandbox=False)
    await a_loss_is_no_result(of_sandbox=True)
    await a_refused_start_is_typed()
    await a_cancelled_start_leaves_nothing()
    left = await sandlot.AsyncSandbox.list(labels=[LABEL])
    assert left == [], left


asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
assert COPY.read_text() == Path(__file__).read_text()
