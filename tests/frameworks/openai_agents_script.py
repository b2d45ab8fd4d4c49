"""Runs in the environment of the OpenAI Agents SDK: its own runner and tools, with models that say what is written here."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import agents
import sandlot
from agents.run import RunConfig
from agents.sandbox import (
    ExecTimeoutError,
    ExposedPortUnavailableError,
    LocalSnapshotSpec,
    Manifest,
    SandboxAgent,
    SandboxRunConfig,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecNonZeroError, InvalidManifestPathError
from agents.sandbox.snapshot import NoopSnapshotSpec
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from lost import kill_commands, kill_sidecar
from openai.types.responses import ResponseCustomToolCall
from sandlot.integrations.openai_agents import (
    SandlotSandboxClient,
    SandlotSandboxClientOptions,
    SessionLost,
)

agents.set_tracing_disabled(True)
CLIENT = SandlotSandboxClient("host", memory="256MiB", labels=["openai-agents"])
DONE = [assistant_message("done")]
Step = Sequence[Any] | Callable[[Any], Any]


LONGEST = 30_000  # milliseconds that a tool call may wait; it returns early when its process ends


def command(cmd: str, **more: Any) -> list[Any]:
    arguments = {"cmd": cmd, "login": False, "yield_time_ms": LONGEST, **more}
    return [function_call("exec_command", arguments, call_id=uuid4().hex)]


def write(chars: str) -> Callable[[Any], Any]:
    """Write to the process that was started last; nothing waits for it."""

    def step(call: Any) -> Any:
        number = re.findall(r"running with session ID (\d+)", str(call.input))[-1]
        arguments = {"session_id": int(number), "chars": chars, "yield_time_ms": LONGEST}
        return [function_call("write_stdin", arguments, call_id=uuid4().hex)]

    return step


# On a loaded machine, what the test does to the sandbox may come after the first call.
WAITING = [
    command("echo > /tmp/begun; exec -a lost-openai sleep 600", shell="bash"),
    *(write("") for _ in range(6)),
]


def patch(*lines: str) -> list[Any]:
    text = "\n".join(("*** Begin Patch", *lines, "*** End Patch"))
    return [
        ResponseCustomToolCall(type="custom_tool_call", name="apply_patch", call_id=uuid4().hex, input=text)
    ]


def outputs(model: ScriptedModel) -> list[Any]:
    """What the model was told by its tools."""
    last = model.calls[-1].input
    return [item["output"] for item in last if str(item.get("type")).endswith("_output")]


def config(**more: Any) -> RunConfig:
    settings = {"client": CLIENT, "snapshot": NoopSnapshotSpec(), **more}
    return RunConfig(sandbox=SandboxRunConfig(**settings), tracing_disabled=True)


def agent(*steps: Step, **more: Any) -> tuple[SandboxAgent[Any], ScriptedModel]:
    model = ScriptedModel(ModelStep.respond(step) if callable(step) else step for step in steps)
    return SandboxAgent(name="scripted", model=model, **more), model


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = b"\0\0\0\1\0\0\0\1\x08\0\0\0\0"
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(b"\0\0")), chunk(b"IEND", b""))
    )


async def tools_work() -> None:
    """Each built-in tool, and the code's own ends, which are output."""
    one, model = agent(
        command("pwd; cat given/a.txt; echo $SEED; echo no >&2; exit 3"),
        command("python3 -c 'bytearray(1 << 30)'"),
        command("true", shell="no-such-shell"),
        command(f"printf %s {base64.b64encode(png()).decode()} | base64 -d > dot.png"),
        patch("*** Add File: sub/new.txt", "+one", "+two"),
        patch("*** Update File: sub/new.txt", "*** Move to: moved.txt", "@@", " one", "-two", "+three"),
        patch("*** Delete File: no/such.txt"),
        command("cat moved.txt; ls sub"),
        [function_call("view_image", {"path": "dot.png"}, call_id=uuid4().hex)],
        [function_call("view_image", {"path": "no.png"}, call_id=uuid4().hex)],
        command("read line; echo got $line; test -t 0", tty=True, yield_time_ms=250),
        write("hello\n"),
        command("sleep 600", tty=True, yield_time_ms=250),
        write("\x03"),
        [function_call("write_stdin", {"session_id": 7, "chars": "x"}, call_id=uuid4().hex)],
        command("cd / && rm -r /workspace"),
        command("true"),
        DONE,
    )
    entries: dict[str | Path, Any] = {"given/a.txt": File(content=b"given\n")}
    manifest = Manifest(entries=entries, environment={"value": {"SEED": "7"}})  # type: ignore[arg-type]
    result = await agents.Runner.run(one, "a task", run_config=config(manifest=manifest), max_turns=30)
    assert result.final_output == "done"
    told = outputs(model)
    expected = [
        (3, "/workspace\ngiven\n7\nno\n"),
        (137, "sandlot: the memory limit was reached\n"),
        (127, ""),
        (0, ""),
        "Created sub/new.txt",
        "Updated sub/new.txt\nMoved sub/new.txt to moved.txt",
        "apply_patch missing file: no/such.txt",
        (0, "one\nthree"),
        [{"type": "input_image", "image_url": f"data:image/png;base64,{base64.b64encode(png()).decode()}"}],
        "image path `no.png` was not found",
        (None, ""),
        (0, "hello\r\ngot hello\r\n"),
        (None, ""),
        (130, "^C"),
        (1, "write_stdin failed: PTY session not found: 7"),
        (0, ""),
        (126, "cwd: working directory /workspace: no such file or directory\n"),
    ]
    for found, wanted in zip(told, expected, strict=True):
        if isinstance(wanted, tuple):
            code, output = wanted
            assert found.partition("Output:\n")[2].endswith(output), found  # a shell may say `Killed`
            ended = f"exited with code {code}\n" if code is not None else "running with session ID"
            assert ended in found, found
        else:
            assert found == wanted, found


async def sessions_have_files(session: Any) -> None:
    """The interface that the tools and other code use, on one session."""
    done = await session.exec("id -un; pwd; echo no >&2; exit 3", user="nobody", timeout=20)
    assert (done.stdout, done.stderr, done.exit_code) == (b"nobody\n/workspace\n", b"no\n", 3)
    await raises(ExecTimeoutError, session.exec("sleep 60", timeout=0.5))
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


async def a_loss_ends_the_run(lose: Callable[[str], None], *steps: Step, streamed: bool = False) -> None:
    """`lose` is called with the sandbox's id while the second tool call runs, or before it."""
    async with await CLIENT.create() as session:

        def last(_: Any) -> Any:
            raise AssertionError(f"the model was asked after the loss: {outputs(model)}")

        one, model = agent(*steps, last)
        losing = asyncio.create_task(_when_begun(session, lose))
        try:
            if streamed:
                result = agents.Runner.run_streamed(one, "a task", run_config=config(session=session))
                async for _ in result.stream_events():
                    pass
            else:
                await agents.Runner.run(one, "a task", run_config=config(session=session))
        except SessionLost as error:
            assert error.infrastructure, error.verdict
            assert isinstance(error, sandlot.SandboxLost)
            assert error.run_data is not None
        else:
            raise AssertionError("the run had a result")
        await losing
        assert not await session.running()


async def _when_begun(session: Any, lose: Callable[[str], None]) -> None:
    box = await sandlot.AsyncSandbox.connect(session.state.sandbox_id)
    waiting = "until [ -e /tmp/begun ]; do sleep 0.05; done"
    assert (await box.exec(waiting, timeout=120)).ok
    await asyncio.to_thread(lose, box.id)


async def an_end_that_a_tool_catches_still_ends_the_run() -> None:
    """`apply_patch` and `view_image` catch all exceptions: the model is not asked again after them either."""
    async with await CLIENT.create() as session:
        box = await sandlot.AsyncSandbox.connect(session.state.sandbox_id)

        def losing(step: list[Any]) -> Callable[[Any], Any]:
            async def lost(_: Any) -> Any:
                process = await box.start("exec -a lost-patch sleep 600", shell="bash", detach=True)
                assert await process.poll() is None
                await asyncio.to_thread(kill_sidecar, "lost-patch")
                return step

            return lost

        one, model = agent(command("true"), losing(patch("*** Add File: a", "+a")), DONE)
        await raises(SessionLost, agents.Runner.run(one, "a task", run_config=config(session=session)))
        assert len(model.calls) == 2, outputs(model)


class Failing:
    """A sandbox that fails as no sandbox of this machine can be made to within seconds."""

    id = "sb-failing"

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def exec(self, *_: object, **__: object) -> None:
        raise self.error

    start = exec


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


async def a_cancelled_run_leaves_nothing() -> None:
    asked = asyncio.Event()

    def first(_: Any) -> Any:
        asked.set()
        return WAITING[0]

    one, _ = agent(first, *WAITING[1:])
    run = asyncio.create_task(agents.Runner.run(one, "a task", run_config=config()))
    await asked.wait()
    (found,) = await sandlot.AsyncSandbox.list(labels=["openai-agents"])
    box = await sandlot.AsyncSandbox.connect(found.id)
    assert (await box.exec("until [ -e /tmp/begun ]; do sleep 0.05; done", timeout=120)).ok
    run.cancel()
    await asyncio.wait((run,))
    assert run.cancelled()
    assert await sandlot.AsyncSandbox.list(labels=["openai-agents"]) == []


async def main() -> None:
    await tools_work()
    await sessions_resume("tar")
    await sessions_resume("checkpoint")
    await a_loss_ends_the_run(lambda _: kill_sidecar("lost-openai"), *WAITING, streamed=True)
    await a_loss_ends_the_run(kill_commands, *WAITING)
    await an_end_that_a_tool_catches_still_ends_the_run()
    await code_may_end_its_own_sandbox()
    await a_cancelled_run_leaves_nothing()


def the_page_runs(page: Path) -> None:
    model = ScriptedModel([command("uname"), DONE])
    names: dict[str, Any] = {"model": model}
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        exec(code, names)  # noqa: S102
    assert outputs(model)[0].endswith("Linux\n"), outputs(model)


async def raises(kind: type[Exception], work: Any) -> None:
    try:
        found = await work
    except kind:
        return
    raise AssertionError(f"it returned {found!r} and did not raise {kind.__name__}")


if __name__ == "__main__":
    asyncio.run(main())
    the_page_runs(Path(sys.argv[1]))
    print("done")
