"""Live processes: input, signals, waiting, leaving and coming back."""

from __future__ import annotations

import pytest
from sandlot import AsyncProcess, AsyncSandbox, Exit, NotFound, Stdout


async def read_until(process: AsyncProcess, text: str) -> str:
    """Output up to and with `text`."""
    seen = ""
    async for event in process:
        if isinstance(event, Stdout):
            seen += event.text
            if text in seen:
                return seen
    raise AssertionError(f"ended without {text!r}: {seen!r}")


async def test_a_conversation(box: AsyncSandbox) -> None:
    script = "import sys\nfor line in sys.stdin: print(line.strip().upper(), flush=True)"
    async with await box.start(["python3", "-c", script]) as process:
        await process.write("hello\n")
        assert await read_until(process, "HELLO\n") == "HELLO\n"
        await process.write(b"again\n")
        assert await read_until(process, "AGAIN\n") == "AGAIN\n"
        await process.close_stdin()
        result = await process.wait()
    assert result.exit_code == 0
    assert result.stdout == "HELLO\nAGAIN\n"


async def test_wait_alone_gives_the_whole_output(box: AsyncSandbox) -> None:
    process = await box.start("echo out; echo err >&2; exit 5", stdin=False)
    result = await process.wait()
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 5)
    await process.aclose()


async def test_a_signal_reaches_the_command(box: AsyncSandbox) -> None:
    async with await box.start(
        "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    ) as process:
        await read_until(process, "ready")
        await process.signal("TERM", tree=False)
        result = await process.wait()
    assert result.exit_code == 9
    assert "caught" in result.stdout


async def test_kill(box: AsyncSandbox) -> None:
    process = await box.start("sleep 60")
    assert await process.poll() is None
    await process.kill()
    assert (await process.wait()).verdict == "killed"
    ended = await process.poll()
    assert ended is not None
    await process.aclose()


async def test_leaving_the_block_ends_the_command(box: AsyncSandbox) -> None:
    async with await box.start("sleep 60") as process:
        pass
    found = await box.attach(process.op_id)
    assert (await found.wait()).verdict == "killed"


async def test_detach_and_come_back_where_the_output_stopped(box: AsyncSandbox) -> None:
    process = await box.start("echo first; read line; echo second $line", detach=True)
    assert await read_until(process, "first\n") == "first\n"
    offset = process.offset
    op_id = await process.detach()
    async with await box.attach(op_id, offset=offset) as again:
        await again.write("and last\n")
        events = [event async for event in again]
    assert "".join(event.text for event in events if isinstance(event, Stdout)) == "second and last\n"
    assert isinstance(events[-1], Exit)


async def test_a_command_can_be_detached_after_its_start(box: AsyncSandbox) -> None:
    async with await box.start("read line; echo got $line") as process:
        op_id = await process.detach()
    async with await box.attach(op_id):
        pass  # the server knows that it is detached, so leaving it here does not end it
    async with await box.attach(op_id) as again:
        await again.write("it\n")
        assert (await again.wait()).stdout == "got it\n"


async def test_what_was_never_started_cannot_be_detached(box: AsyncSandbox) -> None:
    async with await box.start("true", stdin=False) as process:
        await process.wait()
        assert await process.detach() == process.op_id  # it has ended: nothing to leave, and no error


async def test_attach_to_nothing(box: AsyncSandbox) -> None:
    with pytest.raises(NotFound):
        await box.attach("never-started")
