"""Trainers that are killed, that block their event loop, and that resume while their old process still runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from sandlot import Client, Run, RunLost, Runs, Sandbox

from tests.stack import Stack, private_stack
from tests.waiting import wait_until

# Renews for a run that it has from its environment, and blocks its event loop.
RANK = """
import asyncio, sys, time
from sandlot import AsyncRun

async def main():
    async with AsyncRun.join() as run:
        print(run.ref, flush=True)
        time.sleep(1000)

asyncio.run(main())
"""
TRAINER = f"""
import subprocess, sys
from sandlot import Run, Sandbox

with Run("{{run}}", grace=20) as run:
    rank = subprocess.Popen([sys.executable, "-c", {RANK!r}], stdout=subprocess.PIPE, text=True)
    assert rank.stdout.readline().strip() == run.ref
    print(rank.pid, Sandbox.create("host").id, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with private_stack() as stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(url=stack.url, api_key=stack.api_key) as client:
        yield client


@contextmanager
def trainer(stack: Stack, run: str) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """A trainer's process, the pid of its rank, and a sandbox of their run."""
    env = {**os.environ, "SANDLOT_URL": stack.url, "SANDLOT_API_KEY": stack.api_key}
    command = [sys.executable, "-c", TRAINER.replace("{run}", run)]
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        rank, sandbox_id = process.stdout.readline().split()
        try:
            yield process, int(rank), sandbox_id
        finally:
            process.kill()
            with suppress(ProcessLookupError):
                os.kill(int(rank), signal.SIGKILL)


def verdict(client: Client, sandbox_id: str) -> str | None:
    return Sandbox.connect(sandbox_id, client=client).info.verdict


def test_what_a_killed_trainer_leaves_ends_once_its_last_rank_is_dead(stack: Stack, client: Client) -> None:
    with trainer(stack, "killed") as (process, rank, sandbox_id):
        process.kill()
        process.wait()
        killed = Runs(client=client).get("killed").renewed_at
        # Its rank renews, though its loop is blocked.
        wait_until(lambda: Runs(client=client).get("killed").renewed_at > killed)
        assert verdict(client, sandbox_id) is None
        os.kill(rank, signal.SIGKILL)
        wait_until(lambda: verdict(client, sandbox_id) is not None)
        assert verdict(client, sandbox_id) == "run_lost"
    lost = Runs(client=client).get("killed")
    assert (lost.state, lost.verdicts) == ("LOST", {"run_lost": 1})
    with pytest.raises(RunLost, match="run killed is lost"):
        Sandbox.create("host", run_id="killed", client=client)


def test_a_resumed_trainer_takes_its_run_over(client: Client) -> None:
    told: list[object] = []
    with Run("resumed", grace=15, on_lost=told.append, client=client) as old:
        kept = Sandbox.create("host", client=client)
        with Run("resumed", grace=15, take_over=True, client=client) as new:
            assert os.environ["SANDLOT_RUN_ID"] == new.ref
            assert new.epoch > old.epoch
            assert Sandbox.create("host", client=client).info.run_epoch == new.epoch
            with pytest.raises(RunLost, match="another holder"):
                Sandbox.create("host", run_id=old.ref, client=client)
            wait_until(lambda: told)
            with pytest.raises(RunLost):
                old.check()
            assert new.lost is None
            assert kept.refresh().verdict is None
        assert os.environ["SANDLOT_RUN_ID"] == old.ref
        ended = Runs(client=client).get("resumed")
        assert (ended.state, ended.verdicts) == ("ENDED", {"deleted": 2})
    assert "SANDLOT_RUN_ID" not in os.environ
    assert Runs(client=client).get("resumed").epoch == ended.epoch


def test_runs_that_overlap_leave_no_run_behind_that_is_over(client: Client) -> None:
    first, second = Run("over-1", client=client), Run("over-2", client=client)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert os.environ["SANDLOT_RUN_ID"] == second.ref
    assert Sandbox.create("host", client=client).info.run == "over-2"
    second.__exit__(None, None, None)
    assert "SANDLOT_RUN_ID" not in os.environ


def test_a_forked_child_that_leaves_the_block_does_not_end_the_run(client: Client) -> None:
    with Run("forked", client=client) as run:
        child = os.fork()
        if child == 0:
            try:
                run.__exit__(None, None, None)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert Runs(client=client).get("forked").state == "ACTIVE"
    assert Runs(client=client).get("forked").state == "ENDED"


def test_what_a_create_names_goes_before_the_run_of_the_environment(client: Client) -> None:
    with Run("around", client=client) as run:
        for named, wanted in (
            ("mine", ("mine", None)),
            ("", (None, None)),
            ("around", ("around", run.epoch)),
        ):
            with Sandbox.create("host", run=named, client=client) as box:
                assert (box.info.run, box.info.run_epoch) == wanted
