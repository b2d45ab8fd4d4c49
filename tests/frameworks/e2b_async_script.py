"""The asynchronous half of the unmodified `e2b` SDK: what each module does, and 50 runs at the same time."""

from __future__ import annotations

import asyncio
import sys

from e2b import AsyncSandbox, CommandExitException, NotFoundException, PtySize, TimeoutException
from e2b_end import end

OLD = "old" in sys.argv


async def modules(box: AsyncSandbox) -> None:
    assert await box.is_running()
    assert (await box.get_info()).metadata == {"kind": "async"}
    await box.set_timeout(500)
    done = await box.commands.run("echo out; echo err >&2")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    try:
        await box.commands.run("exit 7")
    except CommandExitException as error:
        assert error.exit_code == 7
    else:
        raise AssertionError("a failed command raised nothing")
    try:
        await box.commands.run("sleep 60", timeout=1)
    except TimeoutException:
        pass
    else:
        raise AssertionError("a command was not ended by its timeout")

    await box.files.write("/tmp/async/a", "text")
    assert await box.files.read("/tmp/async/a") == "text"
    assert [each.name for each in await box.files.list("/tmp/async")] == ["a"]
    try:
        await box.files.read("/tmp/async/none")
    except NotFoundException:
        pass
    else:
        raise AssertionError("a missing file raised nothing")

    events: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    watch = await box.files.watch_dir(
        "/tmp/async", on_event=lambda event: events.put_nowait((event.name, event.type.value))
    )
    await box.files.write("/tmp/async/watched", "1")
    assert await asyncio.wait_for(events.get(), 30) == ("watched", "create")
    await watch.stop()

    cat = await box.commands.run("cat", background=True, stdin=True)
    await box.commands.send_stdin(cat.pid, "typed\n")
    await box.commands.close_stdin(cat.pid)
    assert (await cat.wait()).stdout == "typed\n"

    seen: list[bytes] = []
    pty = await box.pty.create(PtySize(rows=24, cols=80), on_data=seen.append)
    await box.pty.resize(pty.pid, PtySize(rows=30, cols=100))
    await box.pty.send_stdin(pty.pid, b"stty size; exit\n")
    await pty.wait()
    assert b"30 100" in b"".join(seen)


async def main() -> None:
    box = await AsyncSandbox.create(timeout=300, metadata={"kind": "async"}, envs={"HOME": "/tmp"})
    await modules(box)
    other = await AsyncSandbox.connect(box.sandbox_id)
    runs = await asyncio.gather(*(other.commands.run(f"echo {number}", timeout=0) for number in range(50)))
    assert [run.stdout for run in runs] == [f"{number}\n" for number in range(50)]
    await box.files.write("/tmp/kept", "1")
    await box.pause()
    await box.connect()
    assert await box.files.read("/tmp/kept") == "1"
    running = await box.commands.run("sleep 300", background=True)
    assert await box.kill()
    try:
        await running.wait()
    except TimeoutException:
        pass
    else:
        raise AssertionError("a command of a killed sandbox ended as if by itself")


asyncio.run(main())
end("all of it")
