"""A process of callers of `pods/exec`: reads when to call from stdin, and answers with its calls, its CPU and its delays."""

from __future__ import annotations

import asyncio
import sys
import threading
from dataclasses import replace

import msgspec
from kubernetes import client as kubernetes
from kubernetes import config

from loadtests.cluster.baseline import PodsExecCallers
from loadtests.load.baselines import Called
from loadtests.load.exec_messages import ExecDone, ExecSetup, ExecWindow
from loadtests.load.lag import LagWatch
from loadtests.load.messages import Done


def callers_of(setup: ExecSetup) -> PodsExecCallers:
    """Return the callers with their clients. Raises ConfigException for a kubeconfig that is not valid."""

    def core() -> kubernetes.CoreV1Api:
        made = config.new_client_from_config(
            config_file=setup.kubeconfig, context=setup.context, persist_config=False
        )
        return kubernetes.CoreV1Api(made)

    return PodsExecCallers(
        core, namespace=setup.namespace, pods=setup.pods, callers=setup.callers, command=setup.command
    )


async def work(callers: PodsExecCallers, window: ExecWindow, *, process: int) -> ExecDone:
    """Call, and wait for the last one's end. Raises RuntimeError if some do not end."""
    async with LagWatch() as watch:
        made = await _in_thread(callers, window)
    return ExecDone(
        made=made,
        by=Done(
            phase="",
            process=process,
            calls=len(made),
            cpu=watch.cpu,
            wall=watch.wall,
            lags=watch.lags,
            sends=[],
        ),
    )


async def _in_thread(callers: PodsExecCallers, window: ExecWindow) -> list[Called]:
    """Run them in a thread that does not keep the process, unlike one of the loop's executor."""
    loop, made = asyncio.get_running_loop(), asyncio.Future[list[Called]]()

    def settle(calls: list[Called] | None, error: Exception | None) -> None:
        if made.done():
            return
        if error is not None:
            made.set_exception(error)
        else:
            made.set_result(calls or [])

    def run() -> None:
        try:
            calls = callers.run(start=window.start, seconds=window.seconds)
        except Exception as error:
            loop.call_soon_threadsafe(settle, None, error)
        else:
            loop.call_soon_threadsafe(settle, calls, None)

    threading.Thread(target=run, daemon=True).start()
    return await made


async def main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    setup = msgspec.json.decode(await reader.readline(), type=ExecSetup)
    callers = callers_of(setup)
    _answer({"ready": setup.process})
    line = await reader.readline()
    while line:
        window = msgspec.json.decode(line, type=ExecWindow)
        working = asyncio.create_task(work(callers, window, process=setup.process))
        following = asyncio.create_task(reader.readline())
        # No message arrives while calls are made, so EOF on stdin means that no more are wanted.
        await asyncio.wait((working, following), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            callers.stop()
            working.cancel()
            return
        done = working.result()
        numbered = [replace(one, caller=one.caller * setup.processes + setup.process) for one in done.made]
        _answer(msgspec.structs.replace(done, made=numbered))
        line = await following


def _answer(told: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
