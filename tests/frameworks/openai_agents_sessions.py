"""Sessions of the OpenAI Agents SDK without an agent: the interface that its tools and other code use."""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import sandlot
from agents.sandbox import (
    ExecTimeoutError,
    ExposedPortUnavailableError,
    LocalSnapshotSpec,
    Manifest,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecNonZeroError, InvalidManifestPathError
from sandlot.integrations.openai_agents import (
    SandlotSandboxClient,
    SandlotSandboxClientOptions,
    SessionLost,
)
from sandlot.integrations.openai_agents.results import DROPPED

CLIENT = SandlotSandboxClient("host", memory="256MiB", labels=["openai-agents"])


async def sessions_have_files(session: Any) -> None:
    """The interface that the tools and other code use, on one session."""
    done = await session.exec("id -un; pwd; echo no >&2; exit 3", user="nobody", timeout=20)
    assert (done.stdout, done.stderr, done.exit_code) == (b"nobody\n/workspace\n", b"no\n", 3)
    await raises(ExecTimeoutError, session.exec("sleep 60", timeout=0.5))
    much = await session.exec("head -c 17000000 /dev/zero | tr '\\0' x")
    assert (much.exit_code, much.stderr) == (0, DROPPED)
    path = Path("sub/file.bin")
    await session.write(path, io.BytesIO(b"\xff\0data"))
    assert (await session.read(path)).read() == b"\xff\0data"
    assert await session.read_bounded(path, max_bytes=2) == b"\xff\0"
    await session.write(Path("empty"), io.BytesIO(b""))
    assert await session.read_bounded(Path("empty"), max_bytes=2) == b""
    assert [(each.path, each.size) for each in await session.ls("sub")] == [("/workspace/sub/file.bin", 6)]
    await session.mv("sub/file.bin", "moved.bin")
    await raises(WorkspaceReadNotFoundError, session.read(path))
    await raises(WorkspaceArchiveReadError, session.read(Path("sub")))
    await raises(WorkspaceArchiveWriteError, session.write(Path("sub"), io.BytesIO(b"")))
    await raises(ExecNonZeroError, session.mkdir("a/b"))
    await session.mkdir("a/b", parents=True)
    await session.rm("a", recursive=True)
    await session.exec("ln -s /etc etc; chmod 700 sub; mkdir -m 777 open")
    await raises(InvalidManifestPathError, session.read(Path("etc/hostname")))
    await raises(InvalidManifestPathError, session.write(Path("etc/mine"), io.BytesIO(b"")))
    await raises(WorkspaceArchiveWriteError, session.write(Path("sub/x"), io.BytesIO(b""), user="nobody"))
    await session.write(Path("open/x"), io.BytesIO(b"x"), user="nobody")
    assert (await session.ls("open"))[0].owner == "nobody"
    await session.exec("rm etc")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("inside/a.txt", "a")
    archive.seek(0)
    await session.extract("open/given.zip", archive)
    assert (await session.read(Path("open/inside/a.txt"))).read() == b"a"


async def ports_are_reachable(session: Any) -> None:
    await raises(ExposedPortUnavailableError, session.resolve_exposed_port(9))
    server = "import socket as s; l = s.create_server(('127.0.0.1', 8765)); l.accept()[0].sendall(b'hi')"
    update = await session.pty_exec_start(
        "python3", "-c", f"{server}; input()", shell=False, yield_time_s=0.25
    )
    assert update.process_id is not None, update
    endpoint = await session.resolve_exposed_port(8765)
    said = b""
    for _ in range(1200):  # until it listens
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        said = await reader.read(2)
        writer.close()
        if said:
            break
        await asyncio.sleep(0.05)
    assert said == b"hi", said
    assert await session.resolve_exposed_port(8765) == endpoint
    ended = await session.pty_write_stdin(session_id=update.process_id, chars="", yield_time_s=30)
    assert ended.exit_code == 1, ended  # EOFError: it has no standard input


async def sessions_resume(persistence: Any) -> None:
    """A session goes on in its own sandbox, or in another one with what its snapshot has."""
    with tempfile.TemporaryDirectory() as place:
        options = SandlotSandboxClientOptions(workspace_persistence=persistence, exposed_ports=(8765,))
        session = await CLIENT.create(
            snapshot=LocalSnapshotSpec(base_path=Path(place)),
            manifest=Manifest(entries={"given.txt": File(content=b"given")}),
            options=options,
        )
        assert not await session.running()
        await session.start()
        assert await session.running()
        if persistence == "tar":
            await sessions_have_files(session)
            await ports_are_reachable(session)
        await session.exec("echo changed > given.txt; ln -s /usr/bin/env link; echo outside > /srv/outside")
        stored = json.dumps(CLIENT.serialize_session_state(session.state))
        same = await CLIENT.resume(CLIENT.deserialize_session_state(json.loads(stored)))
        await same.start()
        assert (await same.exec("cat given.txt")).stdout == b"changed\n"
        assert same.state.sandbox_id == session.state.sandbox_id
        await same.aclose()
        assert not await session.running()
        stored = json.dumps(CLIENT.serialize_session_state(same.state))
        again = await CLIENT.resume(CLIENT.deserialize_session_state(json.loads(stored)))
        async with again:
            assert again.state.sandbox_id != session.state.sandbox_id
            found = await again.exec("cat given.txt; readlink link; cat /srv/outside")
            outside = b"outside\n" if persistence == "checkpoint" else b""
            assert found.stdout == b"changed\n/usr/bin/env\n" + outside, found.stdout
        await CLIENT.delete(again)
    name = f"openai-agents-{session.state.session_id}"
    kept = await sandlot.AsyncSandbox.find_checkpoints(name)
    assert bool(kept) == (persistence == "checkpoint"), kept
    for each in kept:
        await sandlot.AsyncSandbox.delete_checkpoint(each.id)


class Failing:
    """A sandbox that fails as no sandbox of this machine can be made to within seconds."""

    id = "sb-failing"

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def exec(self, *_: object, **__: object) -> None:
        raise self.error

    start = checkpoint = exec


async def code_may_end_its_own_sandbox() -> None:

    session = await CLIENT.create()
    await session.start()
    calls = session._inner._calls
    box, calls.box = calls.box, Failing(sandlot.SandboxLost("it has ended", verdict="oom"))
    try:
        killed = (137, b"the sandbox has ended (oom): it has ended\n")
        done = await session.exec("true")
        assert (done.exit_code, done.stderr) == killed, done.stderr
        process = await session.pty_exec_start("true")
        assert (process.exit_code, process.output) == killed, process
        await session.start()  # as the runner does before the next turn: no exception
        await raises(ExecNonZeroError, session.read(Path("a")))
        calls.ended_by_code = False
        # A server that does not answer for longer than the SDK's patience is a loss.
        calls.box = Failing(sandlot.ConnectionFailed("no answer", sent=True))
        await raises(SessionLost, session.exec("true"))
        assert not await session.running()
        await raises(SessionLost, session.start())
    finally:
        calls.box = box
        await CLIENT.delete(session)


async def what_is_refused_is_no_loss() -> None:
    """Neither is a tar of the code's own, whose output would be restored as a checkpoint of any sandbox."""
    session = await CLIENT.create()
    await session.start()
    inner = session._inner
    fake = "#!/bin/sh\nwhile [ $1 != -cf ]; do shift; done; printf 'SANDLOT_CHECKPOINT_V1\\nother' > $2"
    made = await session.exec(f"t=$(command -v tar); rm $t; cat > $t <<'E'\n{fake}\nE\nchmod +x $t")
    assert made.ok(), made
    error = await raises(WorkspaceArchiveReadError, inner.persist_workspace())
    assert "reference to a checkpoint" in str(error.context), error.context
    inner.state.workspace_persistence = "checkpoint"
    box = inner._calls.box
    try:
        for refusal in (
            sandlot.ServerError("no checkpoints here", status=501),
            sandlot.ServerError("no space", status=507),
            sandlot.ApiError("too large", status=413),
        ):
            inner._calls.box = Failing(refusal)
            await raises(WorkspaceArchiveReadError, inner.persist_workspace())
            assert inner._calls.lost is None
        inner._calls.box = Failing(sandlot.ApiError("no answer in time", status=408))
        await raises(SessionLost, inner.persist_workspace())
    finally:
        inner._calls.box = box
        await CLIENT.delete(session)


async def check() -> None:
    await sessions_resume("tar")
    await sessions_resume("checkpoint")
    await code_may_end_its_own_sandbox()
    await what_is_refused_is_no_loss()


async def raises(kind: type[Exception], work: Any) -> Any:
    try:
        found = await work
    except kind as error:
        return error
    raise AssertionError(f"it returned {found!r} and did not raise {kind.__name__}")
