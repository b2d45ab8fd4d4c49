"""The terminal of `sandlot shell`: keys and window sizes to the sandbox, its output to here."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable

from sandlot import AsyncClient, AsyncProcess, AsyncSandbox
from sandlot.cli import output
from sandlot.errors import ApiError, SandboxLost, SandlotError
from sandlot.models import Exit


async def attended_shell(
    sandbox: str | None, command: str | list[str], image: str, user: str | None, cwd: str | None
) -> int:
    async with AsyncClient(url=output.connection.url, api_key=output.connection.api_key) as client:
        if sandbox is not None:
            box = await AsyncSandbox.connect(sandbox, client=client)
            return await _terminal(box, command, user, cwd)
        async with await AsyncSandbox.create(image, client=client) as box:
            return await _terminal(box, command, user, cwd)


def _size() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(sys.stdin.fileno())
    except OSError:
        return 80, 24
    return max(1, size.columns), max(1, size.lines)


async def _terminal(box: AsyncSandbox, command: str | list[str], user: str | None, cwd: str | None) -> int:
    env = {"TERM": os.environ.get("TERM", "xterm")}
    with output.refusal_is_said(shown=True):
        process = await box.start(command, pty=_size(), env=env, user=user, cwd=cwd)
        return await _attended(process)


async def _attended(process: AsyncProcess) -> int:
    restore = _raw()
    try:
        async with process, asyncio.TaskGroup() as group:
            helpers = [group.create_task(_type(process)), group.create_task(_follow_size(process))]
            try:
                return await _show(process)
            finally:
                for helper in helpers:
                    helper.cancel()
    except BaseExceptionGroup as group:
        # No handler catches an exception group: it would end in a traceback.
        raise _cause(group) from None
    finally:
        restore()


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the most specific error of the group: the SDK's, if there is one."""
    return next((error for error in group.exceptions if isinstance(error, SandlotError)), group.exceptions[0])


async def _show(process: AsyncProcess) -> int:
    async for event in process:
        if isinstance(event, Exit):
            return output.command_code(event)
        data = event.data
        while data:
            data = data[os.write(1, data) :]
    return output.LOST


async def _type(process: AsyncProcess) -> None:
    """Send typed keys; keys that arrive during a round trip go together."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        while True:
            try:
                data = os.read(0, 65536)
            except OSError:
                data = b""
            try:
                loop.call_soon_threadsafe(typed.put_nowait, data)
            except RuntimeError:
                return  # the loop is closed
            if not data:
                return

    threading.Thread(target=read, daemon=True, name="sandlot-keyboard").start()
    while True:
        data = await typed.get()
        last = not data
        while not typed.empty():
            more = typed.get_nowait()
            last = last or not more
            data += more
        try:
            if data:
                await process.write(data)
            if last:
                await process.close_stdin()
                return
        except (ApiError, SandboxLost):
            return  # the command has ended: its last event has the result


async def _follow_size(process: AsyncProcess) -> None:
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    try:
        while True:
            await changed.wait()
            changed.clear()
            cols, rows = _size()
            try:
                await process.resize(cols=cols, rows=rows)
            except (ApiError, SandboxLost):
                return
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


def _raw() -> Callable[[], None]:
    """Put the terminal into raw mode and return a function that restores it."""
    if not sys.stdin.isatty():
        return lambda: None
    import termios
    import tty

    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)  # the default would discard keys already typed
    return lambda: termios.tcsetattr(0, termios.TCSADRAIN, before)
