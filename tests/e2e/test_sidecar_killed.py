"""A part of a sandbox dies: a typed loss with the verdict, or a sandbox that lives on; a pool fills up again."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

import pytest
from sandlot import Client, ExecResult, Pools, Process, Sandbox, SandboxLost

from tests.e2e import processes
from tests.sidecar.processes import descendants
from tests.stack import Stack
from tests.waiting import SECONDS, wait_until


@pytest.fixture
def stack(empty_stack: Stack) -> Stack:
    return empty_stack


def lost_by(box: Sandbox) -> SandboxLost:
    """What the next command ends with."""
    with pytest.raises(SandboxLost) as lost:
        box.exec("echo there", timeout=10)
    assert lost.value.infrastructure
    return lost.value


def test_a_killed_sidecar_is_a_typed_loss(stack: Stack, client: Client) -> None:
    box = Sandbox.create(client=client)
    assert box.exec("echo here").stdout == "here\n"
    (sidecar,) = processes.sidecars(stack)
    os.kill(sidecar, signal.SIGKILL)
    lost = lost_by(box)
    assert lost.verdict == "sidecar_lost"
    assert "the sidecar ended with status -9" in str(lost)
    assert not {'"', "{", "}"} & set(str(lost))  # no piece of its log's lines, which are JSON
    info = box.refresh()
    assert info.ended
    assert info.verdict == "sidecar_lost"


def test_a_command_that_runs_while_its_sidecar_dies_is_a_loss_and_no_result(
    stack: Stack, client: Client
) -> None:
    box = Sandbox.create(client=client)
    ended: list[ExecResult | BaseException] = []

    def run() -> None:
        try:
            ended.append(box.exec("touch /tmp/runs; sleep 600", timeout=600))
        except SandboxLost as error:
            ended.append(error)

    caller = threading.Thread(target=run)
    caller.start()
    box.exec("until [ -e /tmp/runs ]; do sleep 0.02; done", timeout=SECONDS)
    (sidecar,) = processes.sidecars(stack)
    os.kill(sidecar, signal.SIGKILL)
    caller.join(timeout=SECONDS)
    assert not caller.is_alive()
    (lost,) = ended
    assert isinstance(lost, SandboxLost)
    assert lost.verdict == "sidecar_lost"


def test_a_killed_executor_is_a_typed_loss(stack: Stack, client: Client) -> None:
    box = Sandbox.create(client=client)
    (sidecar,) = processes.sidecars(stack)
    os.kill(processes.executor(sidecar), signal.SIGKILL)
    wait_until(lambda: box.refresh().ended)
    assert lost_by(box).verdict == "sandbox_lost"


def with_a_killed_init(stack: Stack, client: Client) -> tuple[Sandbox, Process]:
    """A sandbox whose init was killed while a command ran in it."""
    box = Sandbox.create(client=client)
    box.files.write("/app/kept", b"kept\n")
    running = box.start("echo runs; sleep 60")
    assert next(iter(running)).data == b"runs\n"
    (sidecar,) = processes.sidecars(stack)
    os.kill(processes.init(sidecar), signal.SIGKILL)
    return box, running


def test_a_killed_init_costs_no_file_and_the_sandbox_lives_on(stack: Stack, client: Client) -> None:
    box, running = with_a_killed_init(stack, client)
    with contextlib.suppress(SandboxLost):
        assert not running.wait().ok
    wait_until(lambda: read_kept(box) == "kept\n")  # a command in the moment of the change may be lost too
    box.delete()


def read_kept(box: Sandbox) -> str:
    try:
        return box.exec("cat /app/kept", timeout=SECONDS).stdout
    except SandboxLost as error:
        assert error.verdict == "sandbox_broken"
        return ""


def test_a_command_that_its_init_took_along_is_a_loss(stack: Stack, client: Client) -> None:
    box, running = with_a_killed_init(stack, client)
    with pytest.raises(SandboxLost) as lost:
        running.wait()
    assert lost.value.verdict == "sandbox_broken"
    box.delete()


def test_a_pool_fills_up_again(stack: Stack, client: Client) -> None:
    pools = Pools(client=client)
    pools.set("warm", image="host", size=2)
    pools.wait_warm("warm", timeout=SECONDS)
    killed = processes.sidecars(stack)
    # An executor outlives its sidecar for a moment, and has the same command line.
    before = set().union(*map(descendants, killed))
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(set(processes.sidecars(stack)) - before) >= 2)
    pools.wait_warm("warm", timeout=SECONDS)
    box = Sandbox.create(client=client, pool="warm")
    assert box.info.pool_hit
    assert box.exec("echo here").stdout == "here\n"
    box.delete()
    pools.delete("warm")
