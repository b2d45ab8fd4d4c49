"""Callers of `pods/exec` in processes of their own, as a phase's own callers have: theirs delay nothing else, and can be ended."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from loadtests.load.baselines import Callers, Calls
from loadtests.load.exec_messages import ExecDone, ExecSetup, ExecWindow
from loadtests.load.generators import Generators, program
from loadtests.load.schedule import share

A_PROCESS = 500  # callers at most: each is a thread


@asynccontextmanager
async def exec_callers(
    count: int,
    *,
    command: Sequence[str],
    namespace: str,
    pods: list[str],
    kubeconfig: str,
    context: str | None,
) -> AsyncIterator[Callers]:
    """Start so many callers, over the pods in turn, and yield what lets them call. At the end none of them is left.

    Raises GeneratorFailed, as the yielded function does.
    """
    processes = -(-count // A_PROCESS)
    setups = [
        ExecSetup(
            kubeconfig=kubeconfig,
            context=context,
            namespace=namespace,
            pods=pods,
            callers=share(count, process=process, processes=processes),
            command=list(command),
            process=process,
            processes=processes,
        )
        for process in range(processes)
    ]
    with tempfile.TemporaryDirectory(prefix="sandlot-") as home:
        log = Path(home) / "callers.log"
        async with Generators(setups, log=log, command=program("loadtests.load.exec_worker")) as started:

            async def call(start: float, seconds: float) -> Calls:
                line = msgspec.json.encode(ExecWindow(start=start, seconds=seconds)) + b"\n"
                told = [msgspec.json.decode(answer, type=ExecDone) for answer in await started.ask(line)]
                return Calls([call for one in told for call in one.made], [one.by for one in told])

            yield call
