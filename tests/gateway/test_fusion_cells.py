"""SandboxFusion's run_jupyter over plain HTTP on the real local backend: answers, limits, hostile cells, lost sandboxes."""

from __future__ import annotations

import base64
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests import plain_http
from tests.e2e import processes
from tests.sidecar.processes import command_line, descendants
from tests.stack import Stack, private_stack
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces, mounts and cgroups"),
]

KEY = "key-of-alpha"


@pytest.fixture
def _no_leaks() -> None:
    """All of the stack is looked at instead, see `stack`."""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    # One for each request at a time: what waits for another's limit may be answered with a 504 on a slow machine.
    options = ("--fusion", "host", "--fusion-sandboxes", "3")
    with private_stack(*options, env={"SANDLOT_API_KEYS": f"{KEY}:alpha"}) as running:
        yield running


def send(stack: Stack, *cells: str, **fields: Any) -> httpx.Response:
    # Without patience, a request whose sandbox is not there within 8 seconds is answered with a 504.
    url = f"{stack.url}/fusion/{KEY}/run_jupyter?patience=100"
    return plain_http.post(url, json={"cells": cells, **fields}, timeout=200)


def run(stack: Stack, *cells: str, **fields: Any) -> dict[str, Any]:
    answer = send(stack, *cells, **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def names(told: dict[str, Any]) -> list[list[str]]:
    return [[error["ename"] for error in cell["error"]] for cell in told["cells"]]


def test_an_answer_has_every_field_of_sandbox_fusions(stack: Stack) -> None:
    cells = [
        "import sys; a = open('in/a.txt').read(); print(a); sys.stderr.write('wrong');",
        "raise ValueError('it goes on')",
        "class Bold:\n    def _repr_html_(self): return '<b>'\n    def __repr__(self): return a\ndisplay(Bold())\na",
        "__import__('os').system('printf out > out; ls'); 'cells' in globals()",
    ]
    files = {"in/a.txt": base64.b64encode("of the request: ü".encode()).decode()}
    began = time.monotonic()
    told = run(stack, *cells, files=files, fetch_files=["out", "absent"])
    assert 0 < told["driver"].pop("execution_time") < time.monotonic() - began
    assert told.pop("executor_pod_name")
    [error] = told["cells"][1].pop("error")
    assert (error["ename"], error["evalue"]) == ("ValueError", "it goes on")
    assert "ValueError: it goes on" in "".join(error["traceback"])
    text = "'of the request: ü'"
    shown = [{"text/plain": text.strip("'"), "text/html": "<b>"}, {"text/plain": text}]
    assert told == {
        "status": "Success",
        "message": "",
        "driver": {"status": "Finished", "return_code": 0, "stdout": "", "stderr": ""},
        "cells": [
            {"stdout": "of the request: ü\n", "stderr": "wrong", "display": [], "error": []},
            {"stdout": "", "stderr": "", "display": []},
            {"stdout": "", "stderr": "", "display": shown, "error": []},
            {"stdout": "in\nout\n", "stderr": "", "display": [{"text/plain": "False"}], "error": []},
        ],
        "files": {"out": base64.b64encode(b"out").decode()},
    }
    assert run(stack)["status"] == "Success"
    assert names(run(stack, "a", "x = 1", "x")) == [["NameError"], [], []]


def test_time_limits_leave_what_was_done_before(stack: Stack) -> None:
    sleep = "print('begun'); import time; time.sleep(60)"
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    with ThreadPoolExecutor(3) as callers:
        one_cell = callers.submit(run, stack, "x = 1", sleep, "x", cell_timeout=6).result
        all_cells = callers.submit(run, stack, "print(1)", sleep, "3", total_timeout=15).result
        killed = callers.submit(run, stack, deaf, "1", cell_timeout=6).result
    told = one_cell()
    assert (told["status"], names(told)) == ("Success", [[], ["TimeoutError"], []])
    assert told["cells"][1]["error"][0]["evalue"] == "the cell reached its time limit of 6 s"
    assert told["cells"][1]["stdout"] == "begun\n"
    assert told["cells"][2]["display"] == [{"text/plain": "1"}]
    told = all_cells()
    assert [cell["stdout"] for cell in told["cells"]] == ["1\n", "begun\n"]
    for failed in (told, killed()):
        assert (failed["status"], failed["driver"]["status"]) == ("Failed", "TimeLimitExceeded")
        assert failed["driver"]["return_code"] is None
    assert names(killed()) == [["TimeoutError"]]


@pytest.mark.parametrize(
    ("cell", "fields", "return_code", "errors"),
    [
        ("import os; os._exit(3)", {}, 1, [[], ["DeadKernelError"]]),
        ("len(bytearray(1 << 29))", {"memory_limit_MB": 64}, -9, [[], ["DeadKernelError"]]),
        ("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", {}, -9, [[], ["DeadKernelError"]]),
        ("import os; os.write(os.open(f'/proc/{os.getppid()}/fd/1', 1), b'[[1}\\n')", {}, 1, [[], []]),
    ],
)
def test_cells_own_ends_are_results(
    stack: Stack, cell: str, fields: dict[str, Any], return_code: int, errors: list[list[str]]
) -> None:
    told = run(stack, "print('kept')", cell, "print('not reached')", **fields)
    assert (told["status"], told["driver"]["status"]) == ("Failed", "Finished")
    assert told["driver"]["return_code"] == return_code, told
    assert "sandlot: " in told["driver"]["stderr"] or return_code == -9
    assert told["cells"][0]["stdout"] == "kept\n"
    assert names(told)[: len(errors)] == errors


def test_json_that_would_harm_a_client_is_left_out(stack: Stack) -> None:
    show = "display({{'application/json': {value}, 'text/plain': 'text'}}, raw=True)"
    deep = "d = []\nfor _ in range(500): d = [d]"
    values = ["d", "float('nan')", "[1]"]
    forged = b'{"type":"display","id":"5","data":{"text/plain":"\xff"}}\n'
    write = f"import os; os.write(os.open(f'/proc/{{os.getppid()}}/fd/1', 1), {forged!r});"
    shows = [show.format(value=value) for value in values]
    told = run(stack, deep, *shows, "print('x' * (5 << 20))", write)
    assert told["status"] == "Success"
    shown = [cell["display"] for cell in told["cells"]]
    assert shown == [
        [],
        [{"text/plain": "text"}],
        [],
        [{"application/json": [1], "text/plain": "text"}],
        [],
        [],
    ]
    assert 4_000_000 < len(told["cells"][4]["stdout"]) <= 4 << 20


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"kernel": "ir"}, "kernel"),
        ({"cells": "x"}, "cells"),
        ({"cells": ["1"] * 10_001}, "cells"),
        ({"cell_timeout": -1}, "cell_timeout"),
    ],
)
def test_a_bad_request_names_its_field(stack: Stack, fields: dict[str, Any], field: str) -> None:
    body = {"cells": ["1"], **fields}
    answer = plain_http.post(f"{stack.url}/fusion/{KEY}/run_jupyter", json=body)
    assert answer.status_code == 422
    assert [one["loc"] for one in answer.json()["detail"]] == [["body", field]]


def test_many_wrong_cells_have_one_error(stack: Stack) -> None:
    answer = plain_http.post(f"{stack.url}/fusion/{KEY}/run_jupyter", json={"cells": [0] * 5000})
    assert [one["loc"] for one in answer.json()["detail"]] == [["body", "cells", 0]]


def test_cells_of_a_lost_sandbox_run_in_another(stack: Stack) -> None:
    run(stack)
    with ThreadPoolExecutor(1) as callers:
        told = callers.submit(
            run, stack, "print('begun')", "import os; os.system('sleep 5001.5'); print('done')"
        )
        lost = wait_until(lambda: _sleepers(stack))
        for sidecar in processes.sidecars(stack):
            os.kill(sidecar, signal.SIGKILL)
        [sleep] = wait_until(lambda: _sleepers(stack) - lost)
        os.kill(sleep, signal.SIGTERM)
        assert [cell["stdout"] for cell in told.result()["cells"]] == ["begun\n", "done\n"]


def _sleepers(stack: Stack) -> set[int]:
    """The processes that a cell waits for until the test ends them."""
    return {
        pid
        for sidecar in processes.sidecars(stack)
        for pid in descendants(sidecar)
        if command_line(pid).startswith(b"sleep\x005001.5\0")
    }
