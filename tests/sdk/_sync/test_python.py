# This file is auto-generated from tests/sdk/_async/test_python.py by tools/async_to_sync.py: do not change it.
"""Python contexts: what cells return, and what happens to a context whose code ends it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sandlot import Client, OpExpired, PythonContext, PythonContextEnded, Sandbox, StartFailed

from tests.stack import Stack

pytestmark = pytest.mark.root


@pytest.fixture
def box(stack: Stack) -> Iterator[Sandbox]:
    """A real sandbox, deleted after the test."""
    with (
        Client(url=stack.url, api_key=stack.api_key) as client,
        Sandbox.create(client=client) as box,
    ):
        yield box


@pytest.fixture
def context(box: Sandbox) -> Iterator[PythonContext]:
    with box.python() as context:
        yield context


def test_cells_share_a_namespace(context: PythonContext) -> None:
    pieces: list[str] = []
    first = context.run("import sys\nx = 20\nprint('out')\nprint('err', file=sys.stderr)")
    second = context.run("import os\nos.system('echo from a program')\nx + 1", on_stdout=pieces.append)
    assert (first.status, first.stdout, first.stderr, first.outputs) == ("ok", "out\n", "err\n", ())
    assert (second.text, second.stdout, second.execution_count) == ("21", "from a program\n", 2)
    assert "".join(pieces) == second.stdout
    assert (context.run("await __import__('asyncio').sleep(0, x)")).text == "20"
    assert (context.run("x;")).outputs == ()


def test_objects_are_shown_in_their_media_types(context: PythonContext) -> None:
    shown = context.run(
        "class Table:\n"
        "    def _repr_html_(self): return '<table>'\n"
        "    def _repr_png_(self): return b'\\x89PNG'\n"
        "    def _repr_latex_(self): raise ValueError\n"
        "    def __repr__(self): return 'Table'\n"
        "class Bundle:\n"
        "    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/markdown': '*b*'}, {'a': 1}\n"
        "display(Bundle(), 'text')\n"
        "display({'application/json': {'a': [1]}}, raw=True)\n"
        "Table()"
    )
    bundle, text, raw, table = shown.outputs
    assert (bundle.data["text/markdown"], bundle.metadata, bundle.is_result) == ("*b*", {"a": 1}, False)
    assert text.data == {"text/plain": "'text'"}
    assert raw.data == {"application/json": {"a": [1]}}
    assert set(table.data) == {"text/plain", "text/html", "image/png"}
    assert (table.text, table.html, table.png) == ("Table", "<table>", b"\x89PNG")
    assert shown.result is table
    assert table.is_result


def test_what_code_raises_is_a_result(context: PythonContext) -> None:
    raised = context.run("def f():\n    return 1 / 0\nprint('before')\nf()")
    assert (raised.status, raised.stdout) == ("error", "before\n")
    assert raised.error is not None
    assert (raised.error.name, raised.error.value) == ("ZeroDivisionError", "division by zero")
    assert 'File "<cell 1>", line 4' in str(raised.error)
    assert "return 1 / 0" in str(raised.error)
    assert "python_driver" not in str(raised.error)
    for code, name in (
        ("def f(:", "SyntaxError"),
        ("exit()", "SystemExit"),
        ("input('name? ')", "EOFError"),
        ("import os\nif os.fork() == 0: raise ValueError\nos.wait()\n1 / 0", "ZeroDivisionError"),
    ):
        failed = context.run(code)
        assert failed.error is not None
        assert failed.error.name == name
    assert (context.run("f.__name__")).text == "'f'"


def test_a_timeout_interrupts_the_cell(context: PythonContext) -> None:
    context.run("x = 1")
    slow = context.run("print('begun')\nwhile True: pass", timeout=2)
    assert (slow.status, slow.stdout, slow.state_lost) == ("timeout", "begun\n", False)
    assert (context.run("x")).text == "1"


def test_output_is_bounded(context: PythonContext) -> None:
    long = context.run("print('x' * 1_000_000)\ndisplay('y' * 1_000_000)", output_limit=1000)
    assert long.truncated
    assert 500 < len(long.stdout) < 1000
    assert (long.outputs, long.status) == ((), "ok")
    assert not (context.run("print('x')")).truncated


def test_code_that_ends_its_process_loses_the_state(context: PythonContext) -> None:
    died = context.run("import os\nx = 1\nprint('last', flush=True)\nos._exit(3)")
    assert (died.status, died.stdout, died.state_lost) == ("died", "last\n", True)
    assert died.message == "its Python process ended with exit code 3"
    with pytest.raises(PythonContextEnded, match="exit code 3"):
        context.run("x")
    before = context.id
    context.restart()
    assert context.id == before
    fresh = context.run("x")
    assert fresh.error is not None
    assert (fresh.error.name, fresh.execution_count) == ("NameError", 1)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("os.kill(os.getppid(), 9)", "signaled"),
        (
            "os.write(os.open(f'/proc/{os.getppid()}/fd/1', os.O_WRONLY), b'{}garbage\\n')",
            "wrote into its protocol",
        ),
    ],
)
def test_hostile_code_ends_only_its_context(context: PythonContext, code: str, message: str) -> None:
    hostile = context.run(f"import os, time\n{code}\ntime.sleep(60)")
    assert (hostile.status, hostile.state_lost) == ("died", True)
    assert message in hostile.message
    with pytest.raises(PythonContextEnded, match=message):
        context.run("1")
    context.restart()
    assert (context.run("1")).text == "1"


def test_a_context_that_cannot_start(box: Sandbox) -> None:
    with pytest.raises(StartFailed, match="'no-python' cannot run a Python context") as raised:
        box.python(interpreter="no-python")
    assert raised.value.field == "interpreter"
    with pytest.raises(StartFailed, match="cwd"):
        box.python(cwd="/missing")


def test_its_environment_directory_and_user(box: Sandbox) -> None:
    with box.python(env={"COLOUR": "blue"}, cwd="/tmp", user="nobody") as context:
        seen = context.run("import os, getpass\nos.environ['COLOUR'], os.getcwd(), getpass.getuser()")
    assert seen.text == "('blue', '/tmp', 'nobody')"
    with pytest.raises(PythonContextEnded, match="it was closed"):
        context.run("1")


def test_a_cell_id_runs_once(context: PythonContext) -> None:
    for number in range(9):
        context.run(f"x = {number}", cell_id=f"cell-{number}")
    assert (context.run("x = 100", cell_id="cell-8")).ok
    with pytest.raises(OpExpired, match="no longer kept"):
        context.run("x = 100", cell_id="cell-0")
    assert (context.run("x")).text == "8"
