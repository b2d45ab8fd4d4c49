"""Checkpoints in a bucket over a real stack: what comes back, and what callers are told while the bucket's server is away."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import AsyncClient, AsyncSandbox, NotFound, SandboxLost

from tests.gateway.real_stack import ask, client, run
from tests.leaks import no_leaks
from tests.s3.server import BUCKET, S3Server, s3_server
from tests.stack import Stack

pytestmark = [
    pytest.mark.programs,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces"),
]

__all__ = ["client", "s3_server"]


def options(server: S3Server, *, bucket: str = BUCKET) -> tuple[str, ...]:
    place = server.place(bucket=bucket)
    return ("--checkpoint-s3", f"s3://{bucket}/{place.prefix}", "--checkpoint-s3-endpoint", server.endpoint)


@pytest.fixture(autouse=True)
def _no_leaks() -> None:
    """The stack lives longer than one test here; its own fixture looks for what it leaves."""


@pytest.fixture(scope="module")
def stack(s3_server: S3Server) -> Iterator[Stack]:
    with (
        tempfile.TemporaryDirectory(prefix="sandlot-") as directory,
        no_leaks(marker=directory, descriptors=False),
        Stack(Path(directory) / "state", options=options(s3_server), env=s3_server.keys) as running,
    ):
        yield running


async def test_files_come_back_and_no_directory_is_made(stack: Stack, client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client, memory="2GiB", disk="1GiB") as first:
        await run(first, "head -c 20000000 /dev/urandom > /big && sha256sum /big > /sum")
        made = await first.checkpoint(name="kept")
        assert made.state == "DURABLE"
        assert made.stored is not None
        assert made.stored > 20_000_000
    assert await AsyncSandbox.find_checkpoints("kept", client=client) == [made]
    async with await AsyncSandbox.create(checkpoint=made, client=client, memory="2GiB") as second:
        assert await run(second, "sha256sum -c /sum") == "/big: OK\n"
    await AsyncSandbox.delete_checkpoint(made.id, client=client)
    with pytest.raises(NotFound):
        await AsyncSandbox.create(checkpoint=made, client=client)
    assert not (stack.state_dir / "checkpoints").exists()


async def test_forks_are_copied_through_the_bucket(client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client) as box:
        await run(box, "echo kept > /file")
        for fork in await box.fork(2):
            async with fork:
                assert await run(fork, "cat /file") == "kept\n"


async def test_while_the_server_is_away_callers_are_told_and_no_code_is_blamed(
    stack: Stack, client: AsyncClient, s3_server: S3Server
) -> None:
    async with await AsyncSandbox.create(client=client) as box:
        await run(box, "echo kept > /file")
        made = await box.checkpoint()
        with s3_server.away():
            for method, path in (
                ("POST", f"/sandbox/{box.id}/checkpoints"),
                ("GET", f"/sandbox/{box.id}/checkpoints"),
                ("GET", "/sandbox/checkpoints?name=x"),
                ("GET", f"/sandbox/checkpoints/{made.id}"),
                ("DELETE", f"/sandbox/checkpoints/{made.id}"),
            ):
                answer = ask(stack, method, path)
                assert answer.status_code == 503, path
                assert "does not answer" in answer.json()["detail"]
                assert answer.headers["retry-after"] == "5"
            answer = ask(stack, "POST", "/sandbox", body={"checkpoint_id": made.id})
            assert (answer.status_code, "does not answer" in answer.json()["detail"]) == (503, True)
            assert await run(box, "cat /file") == "kept\n"
        async with await AsyncSandbox.create(checkpoint=made, client=client) as second:
            assert await run(second, "cat /file") == "kept\n"
        await AsyncSandbox.delete_checkpoint(made.id, client=client)


async def test_an_archive_that_is_gone_ends_the_new_sandbox_as_the_infrastructures_fault(
    client: AsyncClient, s3_server: S3Server
) -> None:
    async with await AsyncSandbox.create(client=client) as box:
        made = await box.checkpoint()
    for path in (s3_server.directory / "buckets").rglob(f"{made.id}-*.pack"):
        path.unlink()
    with pytest.raises(SandboxLost, match="cannot restore the checkpoint") as lost:
        await AsyncSandbox.create(checkpoint=made, client=client)
    assert lost.value.verdict == "start_failed"
    await AsyncSandbox.delete_checkpoint(made.id, client=client)


def test_credentials_are_in_no_command_line_and_no_log(stack: Stack, s3_server: S3Server) -> None:
    secret = s3_server.keys["AWS_SECRET_ACCESS_KEY"].encode()
    assert stack.process is not None
    assert secret not in Path(f"/proc/{stack.process.pid}/cmdline").read_bytes()
    # What earlier tests had goes meanwhile; os.walk passes over a directory that does.
    paths = [Path(parent, name) for parent, _, names in os.walk(stack.state_dir) for name in names]
    assert paths
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                assert secret not in path.read_bytes(), path


def test_a_gateway_without_its_bucket_does_not_start_and_says_why(s3_server: S3Server) -> None:
    with tempfile.TemporaryDirectory(prefix="sandlot-") as directory:
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "sandlot_gateway", "--port", "0", "--state-dir", directory),
                *("--api-key", "test-key", *options(s3_server, bucket="nothing")),
            ],
            env={**os.environ, **s3_server.keys},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert ended.returncode != 0
    assert "the bucket 'nothing' of checkpoint_s3 does not exist: create it" in ended.stderr
    assert "Traceback" not in ended.stderr
