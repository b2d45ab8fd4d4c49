"""Every method of the unmodified `e2b-code-interpreter` SDK, and what its users catch; `async`: its asynchronous half."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable

from e2b import NotFoundException, TimeoutException
from e2b.exceptions import SandboxException
from e2b_code_interpreter import AsyncSandbox, Execution, Sandbox
from e2b_end import end

SHOWN = """
class Rich:
    def _repr_mimebundle_(self, include, exclude):
        return {
            "text/plain": "rich", "text/html": "<b>1</b>", "text/markdown": "*1*", "image/svg+xml": "<svg/>",
            "image/png": b"png", "image/jpeg": b"jpeg", "application/pdf": b"pdf", "text/latex": "$1$",
            "application/json": {"a": [1]}, "application/javascript": "1", "e2b/data": {"b": [2]},
            "e2b/chart": {"type": "unknown", "title": "t", "elements": []}, "x/other": "more",
        }
print("before")
display(Rich())
Rich()
"""
WAITS = """
import os, sys, time
print("out", flush=True)
while not os.path.exists("/tmp/seen"):
    time.sleep(0.05)
print("err", file=sys.stderr)
display(1)
1 / 0
"""
FORMATS = [
    "text",
    "html",
    "markdown",
    "svg",
    "png",
    "jpeg",
    "pdf",
    "latex",
    "json",
    "javascript",
    "data",
    "chart",
]


def raises(kind: type[BaseException], work: Callable[[], object]) -> BaseException:
    try:
        found = work()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}: {found!r}")


def text(execution: Execution) -> str | None:
    assert execution.error is None, execution.error
    return execution.text


def runs(box: Sandbox) -> None:
    assert box.run_code("x = 41").results == []
    second = box.run_code("import os\nx += 1\nx")
    assert (second.text, second.execution_count) == ("42", 2)
    assert text(box.run_code("'quoted'")) == "quoted"
    assert text(box.run_code("os.environ['BOX'] + os.environ['CELL']", envs={"CELL": "b"})) == "ab"
    assert text(box.run_code("'CELL' in os.environ", language="python")) == "False"

    seen: list[str] = []

    def note(message: object) -> None:
        seen.append(str(message))
        if len(seen) == 1:
            box.files.write("/tmp/seen", "")  # which the cell waits for

    failed = box.run_code(
        WAITS, on_stdout=note, on_stderr=note, on_result=note, on_error=lambda error: note(error.name)
    )
    assert seen == ["out\n", "err\n", "Result(1)", "ZeroDivisionError"]
    assert (failed.logs.stdout, failed.logs.stderr) == (["out\n"], ["err\n"])
    assert failed.error is not None
    assert failed.error.value == "division by zero"
    assert "1 / 0" in failed.error.traceback
    shown = box.run_code(SHOWN)
    assert [each.is_main_result for each in shown.results] == [False, True]
    rich = shown.results[1]
    assert sorted(rich.formats()) == sorted([*FORMATS, "x/other"])
    assert (rich.html, rich.png, rich.json, rich.data) == ("<b>1</b>", "cG5n", {"a": [1]}, {"b": [2]})
    assert shown.text == "rich"


def contexts(box: Sandbox) -> None:
    box.run_code("x = 1")
    box.commands.run("mkdir -p /tmp/there")
    context = box.create_code_context(cwd="/tmp/there", language="python")
    assert (context.language, context.cwd) == ("python", "/tmp/there")
    assert text(box.run_code("import os; os.getcwd()", context=context)) == "/tmp/there"
    box.run_code("x = 2", context=context)
    assert text(box.run_code("x")) == "1"
    again = Sandbox.connect(box.sandbox_id)
    assert text(again.run_code("x", context=context)) == "2"
    assert {(each.id, each.cwd) for each in again.list_code_contexts()} >= {(context.id, "/tmp/there")}
    assert all("python3" not in each.cmd for each in box.commands.list())
    again.restart_code_context(context)
    assert (
        text(box.run_code("'x' in globals(), os" if False else "'x' in globals()", context=context))
        == "False"
    )
    box.remove_code_context(context.id)
    assert [each.id for each in box.list_code_contexts()] == ["default"]
    raises(NotFoundException, lambda: box.run_code("1", context=context))
    raises(NotFoundException, lambda: box.restart_code_context(context))
    assert "python" in str(raises(SandboxException, lambda: box.run_code("1", language="r")))
    assert "cwd" in str(raises(SandboxException, lambda: box.create_code_context(cwd="/none")))


def ends(box: Sandbox) -> None:
    """What ends cells and contexts: a result if it is the code's doing, else an exception."""
    assert text(box.run_code("x = 1")) is None
    raises(TimeoutException, lambda: box.run_code("while True: pass", timeout=1))
    assert text(box.run_code("x")) == "1"  # it was interrupted
    raises(
        TimeoutException,
        lambda: box.run_code("import time\nwhile True:\n  try: time.sleep(60)\n  except: pass", timeout=1),
    )
    lost = box.run_code("x")
    assert lost.error is not None
    assert (lost.error.name, "time limit" in lost.error.value) == ("ContextRestarting", True)
    died = box.run_code("print('last')\nimport os\nos._exit(3)")
    assert died.error is not None
    assert (died.logs.stdout, died.error.name) == (["last\n"], "ContextRestarting")
    assert text(box.run_code("'x' in globals()")) == "False"
    gone = box.run_code("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nwhile True: pass")
    assert gone.error is not None
    assert gone.error.name == "ContextRestarting"
    assert text(box.run_code("6 * 7")) == "42"
    threading.Timer(1, box.kill).start()
    raises(TimeoutException, lambda: box.run_code("while True: pass"))
    raises(TimeoutException, lambda: box.run_code("1"))


async def asynchronous() -> None:
    box = await AsyncSandbox.create(timeout=120)
    seen: list[str] = []
    context = await box.create_code_context()

    async def note(message: object) -> None:
        seen.append(str(message))

    both = await asyncio.gather(
        box.run_code("print(1)\n2", on_stdout=note), box.run_code("3", context=context)
    )
    assert ([each.text for each in both], seen) == (["2", "3"], ["1\n"])
    await box.remove_code_context(context)
    assert [each.id for each in await box.list_code_contexts()] == ["default"]
    await box.restart_code_context("default")
    assert (await box.run_code("1 +")).error.name == "SyntaxError"
    assert await box.kill()


if "async" in sys.argv:
    asyncio.run(asynchronous())
else:
    sandbox = Sandbox.create(timeout=300, envs={"BOX": "a"})
    runs(sandbox)
    contexts(sandbox)
    ends(sandbox)
end("all of it")
