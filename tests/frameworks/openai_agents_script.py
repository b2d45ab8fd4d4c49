"""Runs in the environment of the OpenAI Agents SDK: its own runner and tools, with models that say what is written here."""

from __future__ import annotations

import asyncio
import base64
import re
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import agents
import openai_agents_sessions
import sandlot
from agents.run import RunConfig
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File
from agents.sandbox.snapshot import NoopSnapshotSpec
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from lost import kill_commands, kill_sidecar
from openai.types.responses import ResponseCustomToolCall
from openai_agents_sessions import CLIENT, raises
from sandlot.integrations.openai_agents import SessionLost

agents.set_tracing_disabled(True)
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
                up = "echo > /tmp/up; exec -a lost-patch sleep 600"
                await box.start(up, shell="bash", detach=True)
                assert (await box.exec("until [ -e /tmp/up ]; do sleep 0.05; done", timeout=120)).ok
                await asyncio.to_thread(kill_sidecar, "lost-patch")
                return step

            return lost

        one, model = agent(command("true"), losing(patch("*** Add File: a", "+a")), DONE)
        await raises(SessionLost, agents.Runner.run(one, "a task", run_config=config(session=session)))
        assert len(model.calls) == 2, outputs(model)


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
    await openai_agents_sessions.check()
    await a_loss_ends_the_run(lambda _: kill_sidecar("lost-openai"), *WAITING, streamed=True)
    await a_loss_ends_the_run(kill_commands, *WAITING)
    await an_end_that_a_tool_catches_still_ends_the_run()
    await a_cancelled_run_leaves_nothing()


def the_page_runs(page: Path) -> None:
    model = ScriptedModel([command("uname"), DONE])
    names: dict[str, Any] = {"model": model}
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        exec(code, names)  # noqa: S102
    assert outputs(model)[0].endswith("Linux\n"), outputs(model)


if __name__ == "__main__":
    asyncio.run(main())
    the_page_runs(Path(sys.argv[1]))
    print("done")
