"""What our environment of harbor does in a sandbox, without harbor: ends of commands, and directories both ways."""

from __future__ import annotations

import asyncio
import os
import pwd
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from sandlot import AsyncClient, AsyncSandbox
from sandlot.errors import (
    INFRASTRUCTURE,
    BadRequest,
    BuildFailed,
    Busy,
    ConnectionFailed,
    FileMissing,
    FileTooLarge,
    SandboxLost,
    ServerError,
    WaitTimeout,
)
from sandlot.integrations._lost_commands import own_end
from sandlot.integrations.harbor import SandboxEndedByCode, SandboxInfrastructureError
from sandlot.integrations.harbor.commands import Ended, home, run
from sandlot.integrations.harbor.losses import losses
from sandlot.integrations.harbor.transfers import download_directory, upload_directory
from sandlot.models import ExecResult, Verdict

from tests.frameworks.ended_box import EndedBox
from tests.frameworks.lost import kill_commands
from tests.stack import Stack
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

# What no tar of a directory has: ways out of the target.
HOSTILE_TAR = """
import io, sys, tarfile
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
    def add(name, kind=tarfile.REGTYPE, leads_to="", data=b""):
        made = tarfile.TarInfo(name)
        made.type, made.linkname, made.size = kind, leads_to, len(data)
        tar.addfile(made, io.BytesIO(data))
    add("../beside", data=b"x")
    add("/tmp/sandlot-absolute", data=b"x")
    add("out", tarfile.SYMTYPE, "../..")
    add("out/above", data=b"x")
    add("here", tarfile.SYMTYPE, ".")
    add("here/up", tarfile.SYMTYPE, "..")
    add("passwd", tarfile.LNKTYPE, "/etc/passwd")
    add("device", tarfile.CHRTYPE)
    add("good", data=b"hi")
    add("same", tarfile.LNKTYPE, "good")
"""


@pytest.fixture
async def box(stack: Stack) -> AsyncIterator[AsyncSandbox]:
    async with (
        AsyncClient(url=stack.url, api_key=stack.api_key) as client,
        await AsyncSandbox.create(client=client) as made,
    ):
        yield made


async def ended(box: AsyncSandbox, command: str, **more: object) -> Ended:
    settings: dict[str, object] = {
        "cwd": None,
        "env": {},
        "timeout": None,
        "user": None,
        "emit": None,
        **more,
    }
    return await run(box, command, **settings)  # type: ignore[arg-type]


async def test_the_ends_of_commands_are_results(box: AsyncSandbox):
    assert await ended(box, "echo out; echo err >&2; exit 3") == Ended("out\n", "err\n", 3)
    assert (await ended(box, "kill -9 $$")).code == 137
    late = await ended(box, "echo half; sleep 60", timeout=10)
    assert (late.stdout, late.code) == ("half\n", 124)
    for more in ({"user": "nobody-knows"}, {"cwd": "/not/there"}):
        refused = await ended(box, "true", **more)
        assert refused.code == 126
        assert str(next(iter(more.values()))) in refused.stderr


@pytest.mark.parametrize(
    ("error", "told"),
    [
        *(
            (SandboxLost("gone", verdict=verdict), SandboxInfrastructureError)
            for verdict in sorted(INFRASTRUCTURE)
        ),
        *((SandboxLost("over", verdict=verdict), SandboxEndedByCode) for verdict in ("oom", "init_killed")),
        (SandboxLost("over", verdict="deleted"), SandboxInfrastructureError),
        *(
            (kind("no"), SandboxInfrastructureError)
            for kind in (Busy, ConnectionFailed, ServerError, WaitTimeout)
        ),
        *((kind("no"), kind) for kind in (BadRequest, FileMissing, BuildFailed)),
    ],
    ids=lambda value: getattr(value, "verdict", type(value).__name__) if isinstance(value, Exception) else "",
)
def test_only_losses_are_losses(error: Exception, told: type[Exception]):
    with pytest.raises(told) as raised, losses("command"):
        raise error
    assert type(raised.value) is told  # harbor reads the name
    assert not isinstance(raised.value, TimeoutError)  # which harbor takes for the agent's


async def test_an_account_has_its_own_home(box: AsyncSandbox):
    # The image is this machine's own system.
    assert await home(box, "nobody") == pwd.getpwnam("nobody").pw_dir
    assert [await home(box, user) for user in (4321, "no-such")] == ["/", "/"]


async def test_output_is_passed_on_while_the_command_runs(box: AsyncSandbox):
    seen: list[tuple[str, str]] = []
    first = asyncio.Event()

    async def emit(text: str, stream: str) -> None:
        seen.append((stream, text))
        first.set()

    running = asyncio.create_task(
        ended(box, "echo one; until [ -e /tmp/go ]; do sleep 0.05; done; echo two >&2; exit 4", emit=emit)
    )
    await first.wait()
    await box.files.write("/tmp/go", b"")
    assert await running == Ended("one\n", "two\n", 4)
    assert seen == [("stdout", "one\n"), ("stderr", "two\n")]


async def test_a_command_whose_sandbox_is_deleted_is_lost(box: AsyncSandbox):
    running = asyncio.create_task(ended(box, "touch /tmp/begun; sleep 60"))
    await until(lambda: box.files.exists("/tmp/begun"))
    await box.delete()
    with pytest.raises(SandboxInfrastructureError, match=box.id):
        await running


@pytest.mark.parametrize("verdict", ["exited", "oom", "init_killed"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_code_that_ends_its_sandbox_is_a_result(verdict: str, streamed: bool):
    async def emit(text: str, stream: str) -> None:
        raise AssertionError(text)

    end = await ended(cast("AsyncSandbox", EndedBox(verdict)), "true", emit=emit if streamed else None)
    assert (end.code, end.with_sandbox, verdict in end.stderr) == (137, True, True)
    assert await home(cast("AsyncSandbox", EndedBox(verdict)), "nobody") == "/"


async def test_a_command_that_someone_else_kills_is_lost(stack: Stack, box: AsyncSandbox):
    running = asyncio.create_task(ended(box, "touch /tmp/begun; sleep 60"))
    await until(lambda: box.files.exists("/tmp/begun"))
    await asyncio.to_thread(kill_commands, box.id, url=stack.url, api_key=stack.api_key)
    with pytest.raises(SandboxInfrastructureError, match="from outside"):
        await running


@pytest.mark.parametrize("verdict", list(Verdict))
def test_only_ends_from_outside_are_lost_commands(verdict: Verdict):
    result = ExecResult(stdout="", stderr="", exit_code=137, verdict=verdict, op_id="one")
    if verdict not in (Verdict.KILLED, Verdict.CLIENT_GONE):
        assert own_end(result, "box") is result
        return
    with pytest.raises(SandboxLost) as raised:
        own_end(result, "box")
    assert raised.value.infrastructure


async def replace_tar(box: AsyncSandbox, script: str) -> None:
    (place,) = set((await box.exec("readlink -f $(which -a tar)", check=True)).stdout.split())
    await box.files.write(place, f"#!/bin/sh\n{script}\n", mode=0o755)


def tree(home: Path) -> None:
    """Modes, links, an empty directory, and a name that is not UTF-8."""
    (home / "empty").mkdir(parents=True)
    (home / "sub").mkdir(mode=0o750)
    (home / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (home / "sub" / "run.sh").chmod(0o755)
    (home / "secret").write_bytes(os.urandom(300_000))
    (home / "secret").chmod(0o600)
    (home / "link").symlink_to("sub/run.sh")
    Path(os.fsdecode(os.fsencode(home) + b"/odd-\xff")).write_text("odd")


def listed(home: Path) -> dict[str, tuple[int, bytes | str]]:
    found: dict[str, tuple[int, bytes | str]] = {}
    for path in home.rglob("*"):
        if path.is_symlink():
            content: bytes | str = os.readlink(path)
        else:
            content = b"" if path.is_dir() else path.read_bytes()
        found[str(path.relative_to(home))] = (stat.S_IMODE(path.lstat().st_mode), content)
    return found


async def test_a_directory_keeps_modes_and_links_both_ways(box: AsyncSandbox, tmp_path: Path):
    tree(tmp_path / "here")
    await box.exec("mkdir -m 1777 /there; touch /there/kept", check=True)
    await upload_directory(box, tmp_path / "here", "/there")
    assert (await box.exec("stat -c %a /there; stat -c %U /there/secret")).stdout == "1777\nroot\n"
    await download_directory(box, "/there", tmp_path / "back")
    assert (tmp_path / "back" / "kept").exists()
    (tmp_path / "back" / "kept").unlink()
    assert listed(tmp_path / "back") == listed(tmp_path / "here")
    with pytest.raises(FileMissing):
        await download_directory(box, "/nowhere", tmp_path / "nowhere")


async def test_a_directory_is_copied_without_tar_and_from_a_full_disk(stack: Stack, tmp_path: Path):
    async with (
        AsyncClient(url=stack.url, api_key=stack.api_key) as client,
        await AsyncSandbox.create(client=client, disk="40MiB") as box,
    ):
        await box.exec("mkdir /big; head -c 3000000 /dev/urandom > /big/log; ln -s log /big/link", check=True)
        await download_directory(box, "/big", tmp_path / "big")
        assert sorted(listed(tmp_path / "big")) == ["link", "log"]
        await box.exec("cat /dev/zero > /fill")
        await download_directory(box, "/big", tmp_path / "full")
        assert listed(tmp_path / "full") == listed(tmp_path / "big")
        await box.exec("rm /fill; mkdir /holes; truncate -s 1T /holes/here", check=True)
        with pytest.raises(FileTooLarge):
            await download_directory(box, "/holes", tmp_path / "holes")
        await box.exec("rm $(which -a tar); ! command -v tar", check=True)
        (tmp_path / "up" / "sub").mkdir(parents=True)
        (tmp_path / "up" / "sub" / "file").write_text("seven")
        await upload_directory(box, tmp_path / "up", "/up")
        await download_directory(box, "/up", tmp_path / "down")
        assert (tmp_path / "down" / "sub" / "file").read_text() == "seven"


@pytest.mark.parametrize(
    "fake",
    [
        "head -c 512 /dev/zero; exit 1",  # busybox, of a file that it could not read whole
        'tr -d "\\0" </dev/null; echo no archive',
        'case $1 in -cf) [ "$2" = - ] || { echo cut >"$2"; exit 1; } ;; esac; exit 1',
        "sleep 60",
    ],
    ids=["cut", "other", "file", "endless"],
)
async def test_a_tar_that_does_not_do_its_work_is_done_without(fake: str, box: AsyncSandbox, tmp_path: Path):
    await box.exec("mkdir /logs; head -c 2000000 /dev/urandom > /logs/big", check=True)
    await replace_tar(box, fake)
    await download_directory(box, "/logs", tmp_path / "logs", seconds=2)
    assert (tmp_path / "logs" / "big").read_bytes() == await box.files.read("/logs/big")


async def test_an_upload_ends_although_tar_does_not(box: AsyncSandbox, tmp_path: Path):
    (tmp_path / "up").mkdir()
    (tmp_path / "up" / "big").write_bytes(bytes(1 << 20))
    await replace_tar(box, "sleep 60")
    await upload_directory(box, tmp_path / "up", "/up", seconds=0.5)
    assert await box.files.read("/up/big") == bytes(1 << 20)


async def test_nothing_of_a_hostile_directory_lands_outside_the_target(box: AsyncSandbox, tmp_path: Path):
    await box.exec(
        "mkdir /hostile; cd /hostile; ln -s /etc/passwd absolute; ln -s ../../up upwards; mkfifo pipe; echo hi > good",
        check=True,
    )
    await download_directory(box, "/hostile", tmp_path / "links")
    assert list(listed(tmp_path / "links")) == ["good"]
    await box.files.write("/hostile.py", HOSTILE_TAR)
    await replace_tar(box, "exec python3 /hostile.py")
    await download_directory(box, "/hostile", tmp_path / "inner" / "target")
    assert sorted(listed(tmp_path / "inner")) == [
        "target",
        *(f"target/{name}" for name in ("good", "here", "out", "out/above", "same")),
    ]
    assert not os.access("/tmp/sandlot-absolute", os.F_OK)
