"""The program of a Python context, by its protocol alone: what clients that lose connections send, and its limits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sandlot_contract import python_driver

from tests.stopped import stopped
from tests.waiting import SECONDS, wait_until

TEXT = Path(python_driver.__file__).read_text()


class Driver:
    """A running program, and the messages that it has sent so far."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.messages: list[dict[str, Any]] = []

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def run(self, cell: str, code: str, **fields: Any) -> None:
        self.send(line(type="run", id=cell, code=code, **fields))

    def until(self, kind: str, cell: str | None) -> dict[str, Any]:
        """Read up to this message."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            message = json.loads(text)
            self.messages.append(message)
            if (message["type"], message.get("id")) == (kind, cell):
                return message
        raise AssertionError(f"it ended: {self.messages}")

    def output(self, cell: str) -> str:
        return "".join(
            item["text"] for item in self.messages if item["type"] == "stdout" and item["id"] == cell
        )


def line(**request: Any) -> bytes:
    return b"\n" + json.dumps(request).encode() + b"\n"


@contextmanager
def driver(*arguments: str, cwd: Path | None = None) -> Iterator[Driver]:
    words = [sys.executable, "-c", TEXT, *arguments]
    with subprocess.Popen(
        words, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        running = Driver(process)
        try:
            running.until("ready", None)
            yield running
        finally:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(SECONDS) == 0


def test_an_end_lets_the_queued_cells_run_and_leaves_the_rest_unread() -> None:
    requests = [line(type="run", id="a", code="x = 1"), line(type="run", id="b", code="print(x)")]
    later = [line(type="end", id="e"), line(type="run", id="c", code="print(2)")]
    words = [sys.executable, "-c", TEXT]
    told = subprocess.run(
        words, input=b"".join(requests + later), capture_output=True, timeout=SECONDS, check=True
    )
    messages = [json.loads(text) for text in told.stdout.splitlines()]
    assert [item["text"] for item in messages if item["type"] == "stdout"] == ["1\n"]
    assert [item["id"] for item in messages if item["type"] == "done"] == ["a", "b"]


def test_a_request_that_was_cut_off_and_repeated_runs_once() -> None:
    with driver() as running:
        request = line(type="run", id="a", code="print('once')")
        running.send(request[:20])
        running.send(request)
        running.send(request)
        running.send(b'\n[1]\n{"type":"run"}\n{"type":"run","id":"bad","code":7}\nnull\n')
        running.run("b", "'next'")
        running.until("done", "b")
    assert running.output("a") == "once\n"
    assert [item["id"] for item in running.messages if item["type"] == "begin"] == ["a", "b"]


def test_interrupts_reach_only_the_cell_that_they_name() -> None:
    with driver() as running:
        running.run("a", "import time\nprint('begun', flush=True)\ntime.sleep(60)")
        running.run("b", "print('never')")
        running.until("stdout", "a")
        running.send(line(type="interrupt", id="b"))  # still in the queue
        assert running.until("done", "b")["error"]["name"] == "KeyboardInterrupt"
        running.send(line(type="interrupt", id="c"))  # not sent yet: its client has given it up
        running.run("c", "print('never')")
        assert running.until("done", "c")["error"]["name"] == "KeyboardInterrupt"
        running.send(line(type="interrupt", id=["c"]))
        running.send(line(type="interrupt", id="a"))
        assert running.until("done", "a")["error"]["name"] == "KeyboardInterrupt"
        running.send(line(type="interrupt", id="a"))  # too late
        running.run("d", "1")
        assert running.until("done", "d")["status"] == "ok"
    assert [item["id"] for item in running.messages if item["type"] == "begin"] == ["a", "d"]


def test_an_interrupt_before_the_process_has_begun_with_the_cell_reaches_it() -> None:
    with driver() as running:
        running.run("a", "import os, time\nprint(os.getpid())")
        running.until("done", "a")
        with stopped(int(running.output("a"))):
            running.run("b", "time.sleep(60)")
            running.until("begin", "b")
            running.run("later", "1")
            running.send(line(type="interrupt", id="b") + line(type="interrupt", id="later"))
            running.until("done", "later")  # so the one before it has been read, too
        assert running.until("done", "b")["error"]["name"] == "KeyboardInterrupt"


DISPLAYS = """
import os, signal, sys, threading, time
def interrupt(main, place=None, same=0):
    while same < 5:  # until the main thread waits within a display, since nobody reads
        time.sleep(0.02)
        frame = sys._current_frames()[main]
        last, place = place, (frame.f_code.co_name, frame.f_lasti)
        same = same + 1 if place == last and frame.f_code.co_filename == "<string>" else 0
    os.kill(os.getpid(), signal.SIGINT)
    open({sent!r}, "w").close()
threading.Thread(target=interrupt, args=(threading.get_ident(),)).start()
while True:
    display({{"text/plain": "x" * 200_000}}, raw=True)
"""


def test_an_interrupt_within_a_display_leaves_whole_messages(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    with driver() as running:
        running.run("a", DISPLAYS.format(sent=str(sent)))
        running.until("begin", "a")
        wait_until(sent.exists)
        done = running.until("done", "a")
        assert (done["error"] or {}).get("name") == "KeyboardInterrupt", done["message"]
        running.run("b", "sys.version")
        assert running.until("done", "b")["status"] == "ok"


def test_a_refused_cell_runs_when_its_request_comes_again_after_a_restart() -> None:
    with driver() as running:
        running.run("a", "import os\nprint('begun', flush=True)\nos.read(os.pipe()[0], 1)")
        running.run("queued", "print('ran')")
        running.until("stdout", "a")
        running.send(line(type="restart", id="r"))
        assert running.until("done", "queued")["status"] == "refused"
        running.run("dying", "os = __import__('os')\nos._exit(1)")
        running.until("done", "dying")
        running.run("late", "print('ran')")
        assert running.until("done", "late")["status"] == "refused"
        running.send(line(type="restart", id="s"))
        for cell in ("queued", "late"):
            running.run(cell, "print('ran')")
            assert running.until("done", cell)["status"] == "ok"
            assert running.output(cell) == "ran\n"


def test_what_is_written_between_cells_is_dropped_and_blocks_nothing(tmp_path: Path) -> None:
    written = tmp_path / "written"
    with driver() as running:
        command = f"sleep 0.1; yes | head -c 1000000; touch {written}"
        running.run("a", f"import subprocess\nchild = subprocess.Popen({command!r}, shell=True)")
        running.until("done", "a")
        wait_until(written.exists)
        running.run("b", "child.wait()")
        assert running.until("done", "b")["status"] == "ok"
    assert running.output("b") == ""


def test_modules_of_the_working_directory_are_for_the_cells_alone(tmp_path: Path) -> None:
    for name in ("base64", "inspect", "linecache", "select"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(1)")
    (tmp_path / "mine.py").write_text("x = 1")
    with driver(cwd=tmp_path) as running:
        running.run("a", "import mine\nprint(mine.x)")
        assert running.until("done", "a")["status"] == "ok"
    assert running.output("a") == "1\n"


def test_it_ends_when_its_output_is_used_up() -> None:
    with driver(str(7_900_000)) as running:
        running.run("a", "print('x' * 600_000)", limit=1 << 20)
        assert running.until("done", "a")["status"] == "ok"
        running.run("b", "1", limit=1 << 20)
        refused = running.until("done", "b")
        assert (refused["status"], "used up its output" in refused["message"]) == ("refused", True)
        assert running.process.wait(SECONDS) == 0


def test_a_long_value_of_an_error_is_whole_and_its_traceback_short() -> None:
    with driver() as running:
        running.run("a", "raise ValueError('é' * 300_000)")
        error = running.until("done", "a")["error"]
        assert error["value"] == "é" * 300_000
        assert sum(map(len, error["traceback"])) < python_driver.MAX_TRACEBACK


@pytest.mark.parametrize(
    ("text", "limit", "left"), [("abcdef", 4, 4), ("abc", 4, 3), ("\0\0", 6, 1), ("x", -1, 0)]
)
def test_cut(text: str, limit: int, left: int) -> None:
    assert len(python_driver.cut(text, limit)) == left


def test_a_cells_own_environment_ends_with_it() -> None:
    show = "import os\nos.environ.pop('A', 'none'), os.environ['HOME']"
    with driver() as running:
        running.run("a", "import os\nos.environ['HOME'] = '/before'")
        running.run("b", show, env={"A": "1", "HOME": "/b"})
        running.run("c", show)
        running.run("bad", "1", env={"A=B": "1"})  # no request
        running.run("d", "1")
        running.until("done", "d")
    shown = {item["id"]: item["data"]["text/plain"] for item in running.messages if item["type"] == "result"}
    assert shown == {"b": "('1', '/b')", "c": "('none', '/before')", "d": "1"}


def test_a_cell_that_ignores_the_interrupt_of_its_client_is_killed() -> None:
    stubborn = (
        "import time\nwhile True:\n  try:\n    print('x', flush=True)\n    time.sleep(60)\n  except: pass"
    )
    with driver() as running:
        running.run("a", stubborn)
        running.until("stdout", "a")
        running.send(line(type="interrupt", id="a", kill_after=0.2))
        done = running.until("done", "a")
        assert (done["status"], done["state_lost"]) == ("timeout", True)
        running.run("b", "1")
        assert running.until("done", "b")["status"] == "refused"
        running.send(line(type="restart", id="r1", only_lost=True))
        running.until("ready", "r1")
        running.run("c", "x = 1")
        running.send(line(type="restart", id="r2", only_lost=True))  # a process is there
        running.run("d", "x")
        assert running.until("done", "d")["status"] == "ok"
    assert not any(item["type"] == "ready" and item["id"] == "r2" for item in running.messages)
