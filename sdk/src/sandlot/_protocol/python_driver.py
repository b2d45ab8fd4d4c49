# This file is a copy of contract/src/sandlot_contract/python_driver.py by tools/python_driver.py: do not change it.
"""The program of a Python context: runs cells in one namespace, for Python 3.8 or later and its standard library alone.

Clients send this program's text as `python3 -c TEXT [OUTPUT_LIMIT]`, so it imports nothing of Sandlot. The first process
speaks the protocol and never runs code of cells; a child does, whose namespace and output pipes are its own. So code
cannot write into the protocol by accident, and neither a busy nor a dead child stops interrupts, timeouts and restarts.

Its input and output are lines of JSON (docs/python-contexts.md). It ignores input that is no request, such as the
begin of one that was cut off and sent again.
"""

# tools/python_driver.py joins this file from contract/python_driver: do not change it.

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.path and sys.path[0] == "":
    # Else a module in the working directory runs in this process. It is for the cells, whose process gets this back.
    del sys.path[0]

import ast
import base64
import builtins
import codecs
import ctypes
import fcntl
import importlib.abc
import importlib.machinery
import inspect
import io
import json
import linecache
import os
import select
import signal
import threading
import time
import traceback
import types
import warnings
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Message = dict[str, Any]
    Bundle = tuple[dict[str, Any], dict[str, Any]]


# The lines of JSON between client, first process and child: their encoding, checks and limits.


TOTAL = 256 << 20  # bytes of the protocol in all, the `output_limit` of the op
LIMIT = 8 << 20  # bytes of one cell's output, unless its request says otherwise
SLACK = 6 << 20  # bytes of a cell's other messages
MAX_LINE = 64 << 20  # bytes of a line from the child or the client
MAX_VALUE, MAX_TRACEBACK = 4 << 20, 128 << 10  # bytes of an error; frameworks return objects as its value


class Corrupt(Exception):
    """The child wrote what is no message: its code has used the descriptor."""


class Lines:
    """Splits what a pipe delivers into lines."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        *complete, rest = data.split(b"\n")
        if complete:
            complete[0] = b"".join(self._parts) + complete[0]
            self._parts, self._size = [], 0
        self._parts.append(rest)
        self._size += len(rest)
        if self._size > MAX_LINE:
            raise Corrupt("it wrote a line without an end")
        return complete


def encode(message: Message | str) -> bytes:
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def write_all(fd: int, data: bytes) -> None:
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            done += os.write(fd, view[done:])


def is_object(value: object) -> bool:
    return isinstance(value, dict)


def is_name(value: object) -> bool:
    return value is None or isinstance(value, str)


def is_texts(value: Any) -> bool:
    return is_list(value) and all(isinstance(item, str) for item in value)


def is_list(value: object) -> bool:
    return isinstance(value, list)


def is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= 1e9


def is_environment(value: Any) -> bool:
    """Return whether these are variables that a process can have; others would end the child."""
    return is_object(value) and all(
        isinstance(item, str) and "\0" not in name + item and name and "=" not in name
        for name, item in value.items()
    )


def clipped(error: Any) -> Message | None:
    """Return the child's description of an error in a form that clients can rely on."""
    if error is None:
        return None
    lines: Any = error.get("traceback", []) if is_object(error) else ()
    if not is_texts(lines):
        raise Corrupt("an error without its lines")
    kept: list[str] = []
    left = MAX_TRACEBACK
    for line in reversed(lines):  # the end says most
        kept.append(cut(line, left))
        left -= len(encode(line))
        if left <= 0:
            break
    name, value = cut(str(error.get("name")), 1024), cut(str(error.get("value")), MAX_VALUE)
    return {"name": name, "value": value, "traceback": kept[::-1]}


def cut(text: str, limit: int) -> str:
    """Return as much of the text's begin as has at most `limit` bytes in a message."""
    limit = max(0, limit)
    text = text[:limit]
    while len(encode(text)) > limit + 3:  # its quotes and the end of the line
        text = text[: len(text) * 3 // 4]
    return text


# Processes below this one: their attributes, ends and kills.


def prctl(option: int, value: int) -> None:
    try:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        return  # without it, processes that left the child's group outlive it


def descendants() -> list[int]:
    """Return all processes below this one."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def kill_descendants() -> None:
    """Kill all processes below this one, also those that left their group or lost their parent."""
    for _ in range(100):
        pids = descendants()
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(0.005)
        reap()


def reap() -> dict[int, int]:
    """Return the wait statuses of all children that have ended."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended[pid] = status


def how_ended(status: int) -> str:
    """Return how a process ended, by its wait status."""
    if not os.WIFSIGNALED(status):
        return f"ended with exit code {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    try:
        called = signal.Signals(number).name
    except ValueError:
        called = "signal"
    return f"was killed by {called} (signal {number})"


# What objects and exceptions of cells look like to clients.


FORMATS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
    ("_repr_pdf_", "application/pdf"),
)


def method(value: Any, name: str) -> Any:
    """Return a method by which an object describes itself; none of a class, or of one that has every attribute."""
    if isinstance(value, type):
        return None
    try:
        if hasattr(value, "_ipython_canary_method_should_not_exist_"):
            return None
        found = getattr(value, name, None)
    except Exception:
        return None
    return found if callable(found) else None


def text_of(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, (bytes, bytearray)) else value


def has_metadata(found: object) -> bool:
    return isinstance(found, tuple)


def bundle(value: Any) -> Bundle:
    """Return what an object is in each media type, and the metadata; a broken method leaves its type out."""
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for name, media in (*FORMATS, ("_repr_mimebundle_", "")):
        call = method(value, name)
        if call is None:
            continue
        try:
            found: Any = call() if media else call(include=None, exclude=None)
            more: Any = {}
            if has_metadata(found):
                found, more = found
            if found is None:
                continue
            if media:
                data[media] = text_of(found)
                if more:
                    metadata[media] = more
            else:
                data.update((str(key), text_of(item)) for key, item in found.items())
                metadata.update(more)
        except Exception:
            continue
    if "text/plain" not in data:
        data = {"text/plain": repr(value), **data}
    return data, metadata


def described(error: BaseException, name: str) -> Message:
    """Return the name, value and traceback of what a cell raised, without this file's frames."""
    try:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        below = trace
        while below is not None:
            while below.tb_next is not None and below.tb_next.tb_frame.f_globals is globals():
                below.tb_next = below.tb_next.tb_next
            below = below.tb_next
        lines = traceback.format_exception(type(error), error, trace)
        value = str(error)
    except BaseException:
        lines, value = [type(error).__name__ + "\n"], "<its text cannot be made>"
    return {"name": type(error).__name__, "value": value, "traceback": lines}


# The child, which runs the code of cells.


def become_child(*, commands: int, control: int, out: int, err: int) -> None:
    """Turn this forked process into the one that runs cells. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        Kernel(commands=out_of_the_way(commands), control=out_of_the_way(control)).serve()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def out_of_the_way(fd: int) -> int:
    """Return a copy with a number that programs do not use by accident, as those do that close 3 to 255."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 768)
    except OSError:
        return fd  # fewer descriptors are allowed


def text_file(fd: int, mode: str) -> Any:
    """Return the file object of a standard descriptor, which writes whole lines at once."""
    return open(fd, mode, buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


class Kernel:
    """Runs one cell after the other in a namespace, and sends what they display."""

    def __init__(self, *, commands: int, control: int) -> None:
        self._commands = os.fdopen(commands, "rb")
        self._control = control
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._running = False
        self._writer = 0  # the thread that writes a message
        self._interrupted = False  # while it did so
        self._loop: Any = None
        main = types.ModuleType("__main__")
        main.__dict__.update(__builtins__=builtins, display=self.display)
        self._namespace = main.__dict__
        sys.modules["__main__"] = main
        sys.argv = [""]
        sys.path.insert(0, "")
        sys.stdin, sys.stdout, sys.stderr = text_file(0, "r"), text_file(1, "w"), text_file(2, "w")
        builtins.input = no_input
        signal.signal(signal.SIGINT, self._on_interrupt)
        os.register_at_fork(after_in_child=self._forget)
        sys.meta_path.insert(0, AfterImport("matplotlib.pyplot", self._adopt_pyplot))
        warnings.filterwarnings("ignore", message=".*non-interactive, and thus cannot be shown")

    def serve(self) -> None:
        for line in self._commands:
            request = json.loads(line)
            earlier = changed(request["env"])
            error = self._run(request["code"], f"<cell {request['count']}>")
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except Exception:
                    continue  # a cell has closed or replaced it
            if os.getpid() != self._pid:
                os._exit(0)  # a cell's fork has come to the cell's end
            changed(earlier)
            self._send({"type": "done", "error": error})

    def display(self, *objects: Any, raw: bool = False, metadata: Any = None, **_: Any) -> None:
        """Show objects as a notebook does; with `raw` they are bundles of media types."""
        for value in objects:
            own = None if raw else method(value, "_ipython_display_")
            if own is not None:
                own()
                continue
            data, described = bundle(value) if not raw else ({**value}, {})
            self._show("display", (data, {**described, **(metadata or {})}))

    def _show(self, kind: str, shown: Bundle) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._send({"type": kind, "data": shown[0], "metadata": shown[1]})

    def _send(self, message: Message) -> None:
        data = json.dumps(message, default=str).encode() + b"\n"
        with self._lock:
            self._interrupted = False
            self._writer = threading.get_ident()
            try:
                write_all(self._control, data)
            finally:
                self._writer = 0
                interrupted, self._interrupted = self._interrupted, False
        if interrupted:
            raise KeyboardInterrupt

    def _forget(self) -> None:
        """In a process that a cell forked: close what is for this one alone."""
        os.close(self._control)
        os.close(self._commands.fileno())
        self._lock = threading.Lock()

    def _on_interrupt(self, number: int, frame: Any) -> None:
        if not self._running:
            return
        if self._writer == threading.get_ident():
            self._interrupted = True  # half a message would end the context
        else:
            raise KeyboardInterrupt

    def _run(self, code: str, name: str) -> Message | None:
        """Run one cell and return what it raised."""
        raised: BaseException | None = None
        try:
            try:
                self._running = True
                self._send({"type": "started"})
                self._execute(code, name)
                self._show_figures()
            except BaseException as error:
                self._running = False
                raised = error
            self._running = False
        except KeyboardInterrupt as error:  # a second one, before the first was noted
            self._running = False
            raised = raised or error
        if raised is None:
            return None
        try:
            return described(raised, name)
        finally:
            raised = None  # its frames keep the cell's values alive

    def _execute(self, code: str, name: str) -> None:
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)  # tracebacks quote it
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = compile(code, name, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        if tree.body:
            self._evaluate(compile(tree, name, "exec", flags, dont_inherit=True))
        if isinstance(last, ast.Expr):
            expression = ast.Expression(last.value)
            value = self._evaluate(compile(expression, name, "eval", flags, dont_inherit=True))
            if value is not None and not code.rstrip().endswith(";"):
                own = method(value, "_ipython_display_")
                if own is not None:
                    own()
                else:
                    self._show("result", bundle(value))

    def _evaluate(self, code: types.CodeType) -> Any:
        value = eval(code, self._namespace)  # noqa: S307 - the code's sandbox is around this process
        if not code.co_flags & inspect.CO_COROUTINE:
            return value
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        task = self._loop.create_task(value)
        try:
            return self._loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            self._loop.run_until_complete(asyncio.wait([task], timeout=1))
            raise

    # figures

    def _adopt_pyplot(self, pyplot: Any) -> None:
        def show(*_: Any, **__: Any) -> None:
            self._show_figures()

        pyplot.show = show

    def _show_figures(self) -> None:
        """Show and close matplotlib's open figures, if a cell has imported it."""
        pyplot: Any = sys.modules.get("matplotlib.pyplot")
        for number in pyplot.get_fignums() if hasattr(pyplot, "get_fignums") else ():
            figure = pyplot.figure(number)
            file = io.BytesIO()
            figure.savefig(file, format="png", bbox_inches="tight")
            pyplot.close(figure)
            self._show("display", ({"text/plain": repr(figure), "image/png": text_of(file.getvalue())}, {}))


def changed(variables: dict[str, Any]) -> dict[str, str | None]:
    """Set environment variables, or remove those with None; return what they were."""
    earlier = {name: os.environ.get(name) for name in variables}
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return earlier


class AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Calls a function with one module as soon as a cell has imported it."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name = name
        self._then = then
        self._loader: Any = None

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then(module)


def no_input(prompt: object = "") -> str:
    """Stand in for `input`, which has nobody to ask."""
    raise EOFError(
        "input() has nothing to read: a Python context has no standard input, so put the text into the code"
    )


# The first process's side of the child.


class Child:
    """The process that runs the cells, with this side's ends of its pipes."""

    def __init__(self) -> None:
        commands, self.commands = os.pipe()
        self.control, control = os.pipe()
        stdout, out = os.pipe()
        stderr, err = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            for fd in (self.commands, self.control, stdout, stderr):
                os.close(fd)
            become_child(commands=commands, control=control, out=out, err=err)
        for fd in (commands, control, out, err):
            os.close(fd)
        self.streams = {"stdout": stdout, "stderr": stderr}
        for fd in (self.commands, *self.streams.values()):
            os.set_blocking(fd, False)
        self.lines = Lines()
        self.outgoing = b""
        self.decoders = {
            "stdout": codecs.getincrementaldecoder("utf-8")("replace"),
            "stderr": codecs.getincrementaldecoder("utf-8")("replace"),
        }

    def interrupt(self) -> None:
        """Send SIGINT to the child and the programs that it runs, as a terminal does."""
        try:
            os.killpg(self.pid, signal.SIGINT)
        except OSError:
            return

    def flush(self) -> None:
        """Write what the child has not been sent yet, as far as it reads."""
        try:
            self.outgoing = self.outgoing[os.write(self.commands, self.outgoing) :]
        except BlockingIOError:
            return
        except OSError:
            self.outgoing = b""  # its end is noticed by its pipes

    def close(self) -> None:
        for fd in (self.commands, self.control, *self.streams.values()):
            os.close(fd)


# A cell, and what the client is told of it.


class Cell:
    """A cell that runs or waits."""

    def __init__(self, request: Message) -> None:
        self.id: str = request["id"]
        self.code: str = request["code"]
        self.env: dict[str, str] = request.get("env") or {}
        if type(self.code) is not str or type(self.id) is not str or not is_environment(self.env):
            raise TypeError
        self.timeout: float | None = request.get("timeout")
        self.left: int = request.get("limit", LIMIT)
        self.begun = 0.0
        self.deadline: float | None = None
        self.started = False  # the child says so
        self.interrupted = False
        self.timed_out = False
        self.truncated = False


class Answers:
    """Messages to the client, on descriptor 1; `left` is how many bytes may still be written."""

    def __init__(self, total: int) -> None:
        self.left = total

    def bounded(self, cell: Cell, message: Message) -> None:
        """Send a message of a cell's output, or what its limit leaves of its text."""
        if cell.truncated:
            return
        line = encode(message)
        if len(line) > cell.left:
            cell.truncated = True
            text = cut(message.get("text", ""), cell.left - 256)  # without the message's other fields
            if not text:
                return
            line = encode(dict(message, text=text))
        cell.left -= len(line)
        self._write(line)

    def done(
        self,
        cell: Cell,
        status: str,
        *,
        error: Message | None = None,
        message: str = "",
        lost: bool = False,
    ) -> None:
        self.send(
            {
                "type": "done",
                "id": cell.id,
                "status": status,
                "error": error,
                "message": message,
                "state_lost": lost,
                "truncated": cell.truncated,
                "seconds": round(time.monotonic() - cell.begun, 6) if cell.begun else 0.0,
            }
        )

    def send(self, message: Message) -> None:
        self._write(encode(message))

    def _write(self, line: bytes) -> None:
        self.left -= len(line)
        write_all(1, line)


# The first process, which speaks the protocol and never runs code of cells.


GRACE = 2.0  # seconds from a timeout's interrupt to the kill
KILLED_TOO = 1.0  # seconds until this process is killed, too, if its child was for the memory limit
KNOWN_IDS = 10_000  # cells whose repetition is noticed
READ = 1 << 16


def ignore(number: int, frame: object) -> None:
    """Handle a signal whose arrival is noticed by its byte in the wakeup pipe."""


class Supervisor:
    """Takes requests from descriptor 0, and runs their cells one after the other in a child."""

    def __init__(self, total: int) -> None:
        self._answers = Answers(total)
        self._requests = Lines()
        self._queue: deque[Cell] = deque()
        self._known: dict[str, None] = {}
        self._cell: Cell | None = None
        self._child: Child | None = None
        self._lost = ""  # why there is no child
        self._count = 0
        self._ending = False  # no further requests come
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._wake, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, ignore)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve requests until the end of the input, until an `end` is done, or until the output is used up."""
        self._start(None)
        while True:
            self._next()
            if self._ending and self._cell is None:
                break
            ready = self._poll()
            if self._wake in ready:
                os.read(self._wake, READ)
                ended = reap()
                if self._child is not None and self._child.pid in ended:
                    self._ended(ended[self._child.pid])
            child = self._child
            if child is not None and child.control in ready:
                self._control(child)
            if child is not None and child is self._child:
                if child.outgoing:
                    child.flush()
                for name, fd in list(child.streams.items()):
                    if fd in ready:
                        self._read(child, name)
            if 0 in ready and not self._input():
                break
            self._check_time()
        kill_descendants()

    def _poll(self) -> list[int]:
        poll = select.poll()
        if not self._ending:
            poll.register(0, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        child = self._child
        if child is not None:
            for fd in (child.control, *child.streams.values()):
                poll.register(fd, select.POLLIN)
            if child.outgoing:
                poll.register(child.commands, select.POLLOUT)
        wait = None
        if self._cell is not None and self._cell.deadline is not None:
            wait = max(0.0, self._cell.deadline - time.monotonic()) * 1000 + 1
        return [fd for fd, _ in poll.poll(wait)]

    # requests

    def _input(self) -> bool:
        data = os.read(0, READ)
        if not data:
            return False
        try:
            lines = self._requests.feed(data)
        except Corrupt:
            return False
        for line in lines:
            try:
                request = json.loads(line)
                kind, name = request["type"], request["id"]
                cell = Cell(request) if kind == "run" else None
                if not is_name(name):
                    continue
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            if cell is not None and name not in self._known:
                self._know(name)
                self._queue.append(cell)
            elif kind == "end":
                self._ending = True
                break
            elif kind == "interrupt":
                self._interrupt(name, kill_after=request.get("kill_after"))
            elif kind == "restart" and name not in self._known:
                self._know(name)
                if self._child is None or request.get("only_lost") is not True:
                    self._restart(name)
        return True

    def _know(self, name: str) -> None:
        self._known[name] = None
        if len(self._known) > KNOWN_IDS:
            del self._known[next(iter(self._known))]

    def _interrupt(self, name: str | None, *, kill_after: Any) -> None:
        if self._cell is not None and name in (None, self._cell.id):
            self._interrupt_running(self._cell)
            if is_seconds(kill_after):
                self._cell.timed_out = True
                self._cell.deadline = time.monotonic() + kill_after
            return
        cell = next((cell for cell in self._queue if cell.id == name), None)
        if cell is not None:
            self._queue.remove(cell)
        elif name is None or name in self._known:
            return
        else:
            # Its request is still on its way, from a client that no longer waits. It is answered now, since it will
            # be ignored as a repetition.
            self._know(name)
            cell = Cell({"id": name, "code": ""})
        error = {"name": "KeyboardInterrupt", "value": "", "traceback": ["KeyboardInterrupt\n"]}
        self._answers.done(cell, "error", error=error)

    def _interrupt_running(self, cell: Cell) -> None:
        cell.interrupted = True
        if cell.started and self._child is not None:  # before, the child ignores it
            self._child.interrupt()

    def _restart(self, name: str) -> None:
        self._lose("the context was restarted")
        while self._queue:
            self._refuse(self._queue.popleft(), "the context was restarted")
        self._count = 0
        self._start(name)

    # the child

    def _start(self, restart: str | None) -> None:
        self._child = Child()
        self._lost = ""
        self._answers.send(
            {"type": "ready", "id": restart, "python": ".".join(map(str, sys.version_info[:3]))}
        )

    def _next(self) -> None:
        while self._queue and self._cell is None:
            cell = self._queue.popleft()
            if self._answers.left < cell.left + SLACK:
                message = (
                    "the context has used up its output: what it may write in all, not what one cell may"
                )
                self._refuse(cell, message)
                kill_descendants()
                raise SystemExit(0)
            if self._child is None:
                self._refuse(cell, self._lost)
                continue
            self._cell = cell
            self._count += 1
            cell.begun = time.monotonic()
            if cell.timeout is not None:
                cell.deadline = cell.begun + cell.timeout
            self._answers.send({"type": "begin", "id": cell.id, "execution_count": self._count})
            self._child.outgoing = encode({"code": cell.code, "count": self._count, "env": cell.env})
            self._child.flush()

    def _refuse(self, cell: Cell, message: str) -> None:
        self._known.pop(cell.id, None)  # else its repetition, after a restart, has no answer
        self._answers.done(cell, "refused", message=message)

    def _check_time(self) -> None:
        cell, child = self._cell, self._child
        if cell is None or child is None or cell.deadline is None or time.monotonic() < cell.deadline:
            return
        if cell.timed_out:
            self._lose("the cell reached its time limit and ignored the interrupt", status="timeout")
        else:
            cell.timed_out = True
            cell.deadline = time.monotonic() + GRACE
            self._interrupt_running(cell)

    def _control(self, child: Child) -> None:
        data = os.read(child.control, READ)
        if not data:
            for _ in range(100):  # an ending process closes it a moment before its end
                pid, status = os.waitpid(child.pid, os.WNOHANG)
                if pid:
                    self._ended(status)
                    return
                time.sleep(0.005)
            self._lose("its process closed its connection to the context")
            return
        try:
            for line in child.lines.feed(data):
                self._message(child, line)
        except Corrupt as error:
            self._lose(f"its process sent an invalid message: {error}")

    def _message(self, child: Child, line: bytes) -> None:
        try:
            message: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Corrupt("no JSON") from error
        self._take(child, message)

    def _take(self, child: Child, message: Any) -> None:
        if not is_object(message):
            raise Corrupt("no object")
        for name in list(child.streams):  # written before it, so also delivered before it
            self._read(child, name)
        cell = self._cell
        kind, data, metadata = message.get("type"), message.get("data"), message.get("metadata")
        if kind in ("display", "result") and is_object(data) and is_object(metadata):
            if cell is not None:
                self._answers.bounded(cell, {"type": kind, "id": cell.id, "data": data, "metadata": metadata})
        elif kind == "started" and cell is not None:
            cell.started = True
            if cell.interrupted:
                child.interrupt()
        elif kind == "done" and cell is not None:
            error = clipped(message.get("error"))
            for name, decoder in child.decoders.items():
                self._text(name, decoder.decode(b"", True))
            self._cell = None
            status = "timeout" if cell.timed_out else "ok" if error is None else "error"
            self._answers.done(cell, status, error=error)
        else:
            raise Corrupt("an unknown message")

    def _read(self, child: Child, name: str) -> None:
        fd = child.streams[name]
        for _ in range(32):  # a writer that never stops must not keep the rest waiting
            try:
                data = os.read(fd, READ)
            except BlockingIOError:
                return
            if not data:
                os.close(child.streams.pop(name))
                return
            self._text(name, child.decoders[name].decode(data))

    def _text(self, name: str, text: str) -> None:
        if (
            text and self._cell is not None
        ):  # what a cell's threads and programs write after its end is dropped
            self._answers.bounded(self._cell, {"type": name, "id": self._cell.id, "text": text})

    def _ended(self, status: int) -> None:
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            time.sleep(KILLED_TOO)  # else chance decides whether the child's end or the limit is told
        self._lose("its Python process " + how_ended(status))

    def _lose(self, reason: str, *, status: str = "died") -> None:
        """Give up the child, which is dead or must be, and end its cell."""
        child, self._child = self._child, None
        self._lost = reason
        if child is not None:
            for name in list(child.streams):
                self._read(child, name)
            child.close()
        kill_descendants()
        cell, self._cell = self._cell, None
        if cell is not None:
            self._answers.done(cell, "timeout" if cell.timed_out else status, message=reason, lost=True)
        elif child is not None:
            self._answers.send({"type": "lost", "message": reason})


def main() -> None:
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    Supervisor(int(sys.argv[1]) if len(sys.argv) > 1 else TOTAL).serve()


if __name__ == "__main__":
    main()
