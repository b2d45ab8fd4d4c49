"""Python contexts across clients, threads and gateways: interrupts, attaching, losses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sandlot import (
    AsyncClient,
    AsyncPythonContext,
    AsyncSandbox,
    CellResult,
    NotFound,
    PythonContextEnded,
    SandboxLost,
)
from sandlot._async import python

from tests.stack import Stack
from tests.waiting import SECONDS

pytestmark = pytest.mark.root
LONG = "import time\nprint('begun', flush=True)\ntime.sleep(60)"


@pytest.fixture
async def box(stack: Stack) -> AsyncIterator[AsyncSandbox]:
    async with (
        AsyncClient(url=stack.url, api_key=stack.api_key) as client,
        await AsyncSandbox.create(client=client) as box,
    ):
        yield box


async def begun(context: AsyncPythonContext, code: str) -> asyncio.Task[CellResult]:
    """A task that runs a cell, as soon as the cell has printed something."""
    printed = asyncio.Event()
    task = asyncio.create_task(context.run(code, on_stdout=lambda _: printed.set()))
    await asyncio.wait_for(printed.wait(), SECONDS)
    return task


async def test_interrupt(box: AsyncSandbox) -> None:
    async with await box.python() as context:
        for code in (LONG, "import subprocess\nprint('begun', flush=True)\nsubprocess.run(['sleep', '60'])"):
            task = await begun(context, code)
            await context.interrupt()
            interrupted = await task
            assert interrupted.error is not None
            assert interrupted.error.name == "KeyboardInterrupt"
        await context.interrupt()  # nothing runs: nothing happens
        assert (await context.run("time.__name__")).text == "'time'"


async def test_cancelling_interrupts_the_cell(box: AsyncSandbox) -> None:
    async with await box.python() as context:
        task = await begun(context, LONG)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await context.run("time.__name__", timeout=30)).text == "'time'"


async def test_a_cell_that_ignores_the_interrupt_is_killed(box: AsyncSandbox) -> None:
    async with await box.python() as context:
        ignoring = "import signal, subprocess\nsubprocess.Popen(['setsid', 'sleep', '61'])\nsignal.signal(signal.SIGINT, signal.SIG_IGN);"
        assert (await context.run(ignoring)).ok
        killed = await context.run("while True: pass", timeout=0.1)
        assert (killed.status, killed.state_lost) == ("timeout", True)
        assert (await box.exec("pgrep -f 'sleep [6]1'", timeout=SECONDS)).stdout == ""
        with pytest.raises(PythonContextEnded, match="ignored the interrupt"):
            await context.run("1")
        await context.restart()
        assert (await context.run("1")).text == "1"


async def test_another_client_attaches_and_gets_the_running_cells_result(
    box: AsyncSandbox, stack: Stack
) -> None:
    context = await box.python(context_id="the-context")
    assert (await context.run("x = 1\nx", cell_id="first")).text == "1"
    task = await begun(
        context,
        "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('/tmp/go'): time.sleep(0.02)\nx = 2\nx",
    )
    async with AsyncClient(url=stack.url, api_key=stack.api_key) as client:
        there = await AsyncSandbox.connect(box.id, client=client)
        other = await there.attach_python("the-context")
        waiting = asyncio.create_task(other.result())
        await there.exec("touch /tmp/go", timeout=SECONDS)
        assert await waiting == await task
        assert (await waiting).text == "2"
        both = await asyncio.gather(context.run("x + 1"), other.run("x + 2"))
        assert [result.text for result in both] == ["3", "4"]
        assert (await other.result("first")).text == "1"
        with pytest.raises(NotFound, match="no result of the cell other"):
            await other.result("other")
        assert (await other.run("x")).text == "2"
        again = await context.run("x = 3", cell_id="first")  # the id of a cell that has run
        assert again.text == "1"
        assert (await context.run("x")).text == "2"
        process = await there.start("sleep 60")
        with pytest.raises(ValueError, match="is no Python context"):
            await there.attach_python(process.op_id)
        await other.aclose()
    with pytest.raises(PythonContextEnded, match="it was closed"):
        await context.run("x")
    await context.aclose()


async def test_contexts_of_one_sandbox_run_side_by_side(box: AsyncSandbox) -> None:
    async with await box.python() as one, await box.python() as two:
        task = await begun(one, LONG)
        assert (await two.run("'time' in dir()")).text == "False"
        await one.restart()  # ends the cell, too
        assert ((await task).status, (await task).message) == ("died", "the context was restarted")
        assert (await one.run("1")).text == "1"


async def test_a_restart_ends_a_program_that_answers_nothing(
    box: AsyncSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python, "RESTART", 0.5)
    async with await box.python() as context:
        # What is printed comes through the program that it stops.
        stopping = (
            "import os, time\nprint('begun', flush=True)\n"
            "while not os.path.exists('/tmp/printed'):\n    time.sleep(0.02)\n"
            "os.kill(os.getppid(), 19)\nopen('/tmp/stopped', 'w').close()\ntime.sleep(60)"
        )
        task = await begun(context, stopping)
        await box.exec("touch /tmp/printed; until [ -e /tmp/stopped ]; do sleep 0.02; done", timeout=SECONDS)
        before = context.id
        await context.restart()
        assert context.id != before
        assert ((await task).status, (await task).state_lost) == ("timeout", True)
        assert (await context.run("1")).text == "1"


async def test_a_refused_cell_runs_after_a_restart(box: AsyncSandbox) -> None:
    async with await box.python() as context:
        assert (await context.run("import os\nos._exit(1)")).state_lost
        with pytest.raises(PythonContextEnded, match="exit code 1"):
            await context.run("1", cell_id="again")
        await context.restart()
        other = await box.attach_python(context.id)  # reads the refusal, too
        assert (await other.run("1", cell_id="again")).text == "1"


async def test_one_that_had_ended_before_the_attach_has_its_results_and_no_restart(box: AsyncSandbox) -> None:
    context = await box.python()
    assert (await context.run("6 * 7", cell_id="first")).text == "42"
    await context.aclose()
    attached = await box.attach_python(context.id)
    assert (await attached.result("first")).text == "42"
    with pytest.raises(PythonContextEnded, match=r"had ended before .* start another with `python`"):
        await attached.restart()


async def test_a_lost_sandbox_is_no_result_of_the_cell(box: AsyncSandbox) -> None:
    context = await box.python()
    task = await begun(context, LONG)
    await box.delete()
    with pytest.raises(SandboxLost) as first:
        await task
    with pytest.raises(SandboxLost) as again:
        await context.run("1")
    assert again.value.verdict == first.value.verdict
    await context.aclose()


async def test_a_cell_that_takes_more_than_the_context_s_memory_dies_alone(box: AsyncSandbox) -> None:
    async with await box.python(memory="200MiB") as context, await box.python() as other:
        assert (await context.run("len(bytes(100 << 20))")).ok
        assert (await other.run("x = b'x' * (300 << 20); len(x)")).ok
        greedy = await context.run("x = b'x' * (300 << 20)")
        assert (greedy.status, greedy.state_lost) == ("died", True)
        assert "memory" in greedy.message
        ended = context.id
        await context.restart()
        assert context.id != ended  # the limit is that of the context's command, which has ended
        assert (await context.run("'x' in globals()")).text == "False"
        assert (
            await context.run("b'x' * (300 << 20)")
        ).status == "died"  # the limit is that of the new process, too
        await context.restart()
        attached = await box.attach_python(context.id)
        for _ in range(2):
            assert (await attached.run("b'x' * (300 << 20)")).status == "died"
            await attached.restart()  # starts one with the same limit
        await attached.aclose()
        assert (await other.run("len(x) >> 20")).text == "300"
    with pytest.raises(ValueError, match=r"^memory: "):
        await box.python(memory="much")


async def test_figures_of_matplotlib_are_shown_once(box: AsyncSandbox) -> None:
    """The package here has the functions of matplotlib.pyplot that the context calls, and nothing else."""
    await box.files.write("/tmp/lib/matplotlib/__init__.py", "")
    await box.files.write("/tmp/lib/matplotlib/pyplot.py", (Path(__file__).parent / "pyplot.py").read_text())
    async with await box.python(env={"PYTHONPATH": "/tmp/lib"}) as context:
        assert (await context.run("1")).outputs[0].png is None
        drawn = await context.run("import matplotlib.pyplot as plt\nplt.figure()\nplt.show()\nplt.figure();")
        assert [output.png for output in drawn.outputs] == [b"PNG of 1", b"PNG of 2"]
        assert (await context.run("1 + 1")).outputs[0].text == "2"
