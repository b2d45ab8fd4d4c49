"""Builds from Dockerfiles on a real local stack, whose image `host` is this machine's root."""

from __future__ import annotations

import asyncio
import os
import signal
import tarfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from sandlot import AsyncClient, AsyncSandbox, BuildFailed, Client, DockerfileError, Sandbox, SandboxLost
from sandlot.dockerfile import build, build_sync

from tests.e2e.processes import sidecars
from tests.local.test_image_sandboxes import small_root
from tests.stack import Stack, private_stack
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces")]

SECRET = "s3cret-value"


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url=stack.url, api_key=stack.api_key) as client:
        yield client


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """A context with modes, links, an empty directory, and files that .dockerignore leaves out."""
    root = tmp_path / "context"
    (root / "src" / "sub" / "empty").mkdir(parents=True)
    (root / "src" / "a.txt").write_text("a\n")
    (root / "src" / "tool").write_text("#!/bin/sh\necho tool\n")
    (root / "src" / "tool").chmod(0o755)
    (root / "src" / "sub").chmod(0o750)
    (root / "src" / "sub" / "deep").write_text("deep\n")
    (root / "src" / "link").symlink_to("a.txt")
    (root / "src" / "skipped.log").write_text("")
    (root / ".dockerignore").write_text("**/*.log\n")
    with tarfile.open(root / "pack.tar.gz", "w:gz") as archive:
        member = archive.gettarinfo(root / "src" / "tool", "in/tool")
        member.uid, member.gid = 7, 8
        with (root / "src" / "tool").open("rb") as file:
            archive.addfile(member, file)
    return root


def write(root: Path, text: str) -> Path:
    (root / "Dockerfile").write_text(text)
    return root


async def out(box: AsyncSandbox, command: str, *, user: str | None = None) -> list[str]:
    result = await box.exec(command, user=user)
    assert result.ok, result
    return result.stdout.splitlines()


async def labelled(client: AsyncClient, label: str) -> list[str]:
    return [info.id for info in await AsyncSandbox.list(labels=[label], client=client)]


async def test_a_build_in_stages_has_the_files_and_settings_of_an_image(
    context: Path, client: AsyncClient
) -> None:
    write(
        context,
        "ARG BASE=none\n"
        "FROM $BASE AS unused\nRUN false\n"
        "FROM host AS base\nENV STAGE=base\nWORKDIR /opt/made\n"
        "FROM base AS maker\nARG WHO\n"
        "COPY src/ ./dir/\n"
        'RUN echo "for $WHO" > out && ln -s out made-link && chown 5:6 out && chmod 4711 dir/tool\n'
        "RUN <<END\nset -e\nfalse || echo script > script\nEND\n"
        "FROM base\n"
        'SHELL ["/bin/bash", "-euo", "pipefail", "-c"]\n'
        "WORKDIR app\n"
        "COPY --from=maker /opt/made/ /copied\n"
        "COPY --chown=11:12 --chmod=640 src/a.txt src/sub/* files/\n"
        "COPY src/lin? none* /one/\n"
        "COPY src/link /two\n"
        "ADD pack.tar.gz /unpacked\n"
        "COPY <<A <<'B' /texts/\n$STAGE\nA\n$STAGE\nB\n"
        "RUN --mount=type=bind,source=src,target=/bound --mount=type=cache,target=/cached"
        " cat /bound/a.txt > bound; touch /cached/x; [[ -f bound ]]\n"
        "USER 5\nWORKDIR /owned\nWORKDIR /opt/made/app\n"
        "USER nobody\nENV PATH=/opt/bin:$PATH A=1\nEXPOSE 80\nENTRYPOINT id -un; pwd; echo $A$STAGE\n",
    )
    args = {"BASE": "host", "WHO": "me"}
    first, second = await asyncio.gather(
        *(build(context, args=args, labels=["builds"], client=client) for _ in range(2))
    )
    assert first.checkpoint_id == second.checkpoint_id
    assert sorted([first.cached, second.cached]) == [False, True]
    assert (first.workdir, first.user, first.exposed_ports) == ("/opt/made/app", "nobody", ("80/tcp",))
    assert await labelled(client, "builds") == []

    async with await AsyncSandbox.create(checkpoint=second, run_image_command=True, client=client) as box:
        assert await out(box, "id -un; pwd; echo $A$STAGE; echo $PATH | cut -d: -f1") == [
            "nobody",
            "/opt/made/app",
            "1base",
            "/opt/bin",
        ]
        found = await out(
            box,
            "cd / && find copied opt/made one two unpacked texts owned -printf '%p %m %U:%G %l\\n' | LC_ALL=C sort",
            user="root",
        )
        assert [line.rstrip() for line in found] == [
            "copied 755 0:0",
            "copied/dir 755 0:0",
            "copied/dir/a.txt 644 0:0",
            "copied/dir/link 777 0:0 a.txt",
            "copied/dir/sub 750 0:0",
            "copied/dir/sub/deep 644 0:0",
            "copied/dir/sub/empty 755 0:0",
            "copied/dir/tool 4711 0:0",
            "copied/made-link 777 0:0 out",
            "copied/out 644 5:6",
            "copied/script 644 0:0",
            "one 755 0:0",
            "one/link 644 0:0",
            "opt/made 755 0:0",
            "opt/made/app 755 0:0",
            "opt/made/app/bound 644 0:0",
            "opt/made/app/files 755 11:12",
            "opt/made/app/files/a.txt 640 11:12",
            "opt/made/app/files/deep 640 11:12",
            "owned 755 5:5",
            "texts 755 0:0",
            "texts/A 644 0:0",
            "texts/B 644 0:0",
            "two 644 0:0",
            "unpacked 755 0:0",
            "unpacked/in 755 0:0",
            "unpacked/in/tool 755 7:8",
        ]
        assert await out(
            box, "cat /copied/out /copied/script /texts/A /texts/B /two; ls -d /bound /cached || true"
        ) == [
            *("for me", "script", "base", "$STAGE", "a"),
        ]

        async def started() -> list[str]:  # the image's command runs beside the others
            return lines if len(lines := (await box.logs()).splitlines()) >= 3 else []

        assert await until(started) == ["nobody", "/opt/made/app", "1base"]
    (kept,) = await AsyncSandbox.find_checkpoints(f"build-{first.key}", client=client)
    async with await AsyncSandbox.create(checkpoint=kept, user="root", env={"A": "2"}, client=client) as box:
        assert await out(box, "id -un; echo $A$STAGE") == ["root", "2base"]


async def test_the_base_images_own_settings_apply(tmp_path: Path, client: AsyncClient) -> None:
    image = small_root(tmp_path / "small.tar")
    write(tmp_path, f"FROM {image}\nENV X=$FLAVOUR-y PATH=/x:$PATH\nWORKDIR sub\nRUN id -u > who\nCMD pwd\n")
    (tmp_path / ".dockerignore").write_text("*")
    built = await build(tmp_path, client=client)
    assert (built.workdir, built.user, built.env) == ("/app/sub", None, {"X": "small-y", "PATH": "/x:/bin"})
    async with await AsyncSandbox.create(checkpoint=built, client=client) as box:
        assert await out(
            box, "id -u; pwd; echo $X; cat who; ls -ldn . | { read a b uid gid c; echo $uid $gid; }"
        ) == [
            *("1000", "/app/sub", "small-y", "1000", "1000 1000"),
        ]


async def test_copies_replace_links_below_their_target_and_leave_out_the_kernels_files(
    tmp_path: Path, client: AsyncClient
) -> None:
    image = small_root(tmp_path / "small.tar")  # its /app/link leads to /app/hello
    files = tmp_path / "files"
    files.mkdir()
    (files / "link").write_text("copied\n")
    with tarfile.open(tmp_path / "pack.tar", "w") as archive:
        archive.add(files / "link", "link")
    write(
        tmp_path,
        f"FROM {image} AS base\nCOPY files/ /app/\nFROM {image}\nADD pack.tar /app/\nCOPY --from=base / /whole\n",
    )
    built = await build(tmp_path, cache=False, client=client)
    async with await AsyncSandbox.create(checkpoint=built, client=client) as box:
        assert await out(
            box, "cd /app; cat hello link; cd /whole/app; cat hello link; ls -A ../proc ../dev"
        ) == [
            *("from the image", "copied", "from the image", "copied", "../dev:", "", "../proc:"),
        ]
    await AsyncSandbox.delete_checkpoint(built.checkpoint_id, client=client)


async def test_a_build_whose_context_changed_meanwhile_is_not_found_again(
    tmp_path: Path, client: AsyncClient
) -> None:
    write(tmp_path, "FROM host\nWORKDIR /w\nCOPY file .\n")
    (tmp_path / "file").write_text("before")

    def edit(text: str) -> None:
        if "WORKDIR" in text:
            (tmp_path / "file").write_text("after")

    built = await build(tmp_path, on_output=edit, client=client)
    assert await AsyncSandbox.find_checkpoints(f"build-{built.key}", client=client) == []
    await AsyncSandbox.delete_checkpoint(built.checkpoint_id, client=client)


async def test_a_run_that_fails_is_no_loss_and_leaves_no_sandbox(tmp_path: Path, client: AsyncClient) -> None:
    write(tmp_path, "FROM host\nARG TOKEN\nRUN echo said; \\\n  exit 3 # $TOKEN\n")
    lines: list[str] = []
    with pytest.raises(BuildFailed) as caught:
        await build(
            tmp_path, args={"TOKEN": SECRET}, labels=["failed"], on_output=lines.append, client=client
        )
    error = caught.value
    assert (error.line, error.exit_code, error.verdict, error.output) == (3, 3, "exited", "said\n")
    assert error.instruction == "RUN echo said; exit 3 # $TOKEN"
    assert SECRET not in str(error) + "".join(lines)
    write(tmp_path, "FROM host\nUSER no-such-user\nRUN true\n")
    with pytest.raises(BuildFailed, match="no-such-user") as caught:
        await build(tmp_path, labels=["failed"], client=client)
    assert (caught.value.line, caught.value.exit_code) == (3, None)
    write(tmp_path, "FROM host AS a\nFROM host\nCOPY --from=a /none /x\n")
    with pytest.raises(DockerfileError, match="'/none' is not in that stage"):
        await build(tmp_path, labels=["failed"], client=client)
    write(tmp_path, "FROM host\nRUN sleep 600\n")
    with pytest.raises(BuildFailed) as caught:
        await build(tmp_path, labels=["failed"], timeout=20, client=client)
    assert caught.value.verdict == "timeout"
    with pytest.raises(BuildFailed) as caught:
        await build(tmp_path, labels=["failed"], timeout=0, client=client)
    assert (caught.value.line, caught.value.verdict) == (1, "timeout")
    assert await labelled(client, "failed") == []


def test_a_lost_sandbox_is_replaced_and_a_second_loss_is_told(tmp_path: Path) -> None:
    write(tmp_path, "FROM host\nRUN echo begun; sleep 0.5; echo end > /end\n")
    with private_stack() as stack, Client(url=stack.url, api_key=stack.api_key) as client:
        left = 1

        def kill(text: str) -> None:
            nonlocal left
            if text == "begun\n" and left:
                left -= 1
                for pid in sidecars(stack):
                    with suppress(ProcessLookupError):  # that of a sandbox before, which has just ended
                        os.kill(pid, signal.SIGKILL)

        built = build_sync(tmp_path, on_output=kill, client=client)
        assert left == 0
        with Sandbox.create(checkpoint=built, client=client) as box:
            assert box.exec("cat /end").stdout == "end\n"
        left = 3
        with pytest.raises(SandboxLost) as caught:
            build_sync(tmp_path, on_output=kill, cache=False, client=client)
        assert caught.value.infrastructure
        assert Sandbox.list(client=client) == []
