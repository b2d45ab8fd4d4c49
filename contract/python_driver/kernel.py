"""The child, which runs the code of cells."""

from __future__ import annotations

import ast
import builtins
import fcntl
import importlib.abc
import importlib.machinery
import inspect
import io
import json
import linecache
import os
import signal
import sys
import threading
import traceback
import types
import warnings
from typing import TYPE_CHECKING, Any

from .displays import bundle, described, method, text_of
from .processes import prctl
from .protocol import write_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from .displays import Bundle
    from .protocol import Message


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
