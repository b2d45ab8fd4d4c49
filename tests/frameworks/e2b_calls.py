"""Loaded by scripts with the SDK of E2B: which methods it has, and which of them a script has called without an error.

`python e2b_calls.py sync|async` prints the names of all methods of this half as JSON, as docs/e2b-methods.md has them.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import json
import sys
from typing import Any

import e2b
import e2b_code_interpreter
from e2b.template.main import TemplateBuilder

FUNCTIONS = (
    "E2B",
    "default_build_logger",
    "get_signature",
    "wait_for_file",
    "wait_for_port",
    "wait_for_process",
    "wait_for_timeout",
    "wait_for_url",
)
# Of the code interpreter, which exports no list.
CELLS = ("Context", "Execution", "ExecutionError", "Logs", "Result")
# What the SDK is made of and its users do not call: settings of connections, and what answers are read into.
PARTS = {
    "ApiClient",
    "ConnectionConfig",
    "EntryInfo",
    "PtyOutput",
    "TemplateBase",
    "VolumeConnectionConfig",
    "WriteInfo",
}


def kinds(half: str) -> dict[str, type]:
    """The classes whose methods users call, by the names that the page has for them."""
    prefix = "Async" if half == "async" else ""

    def part(module: str, name: str) -> type:
        return getattr(importlib.import_module(f"e2b.sandbox_{half}.{module}"), name)

    found = {
        "Sandbox": getattr(e2b_code_interpreter, f"{prefix}Sandbox"),
        "commands": part("commands.command", "Commands"),
        "files": part("filesystem.filesystem", "Filesystem"),
        "pty": part("commands.pty", "Pty"),
        "git": part("git", "Git"),
        "handle": getattr(e2b, f"{prefix}CommandHandle"),
        "watch": getattr(e2b, f"{prefix}WatchHandle"),
        "builder": TemplateBuilder,
        "ReadyCmd": e2b.ReadyCmd,
    }
    found |= {name: getattr(e2b_code_interpreter, name) for name in CELLS}
    names = ("SandboxPaginator", "SnapshotPaginator", "SecretPaginator", "Template", "Volume", "Secret")
    found |= {name: getattr(e2b, prefix + name) for name in names}
    if half == "async":
        found["input"] = e2b.AsyncCommandInputHandle
    return found


def methods(kind: type) -> list[str]:
    return [each for each in dir(kind) if not each.startswith("_") and callable(getattr(kind, each))]


def surface(half: str) -> set[str]:
    """All names of this half. Raises AssertionError for an exported class or function that the lists above lack."""
    listed = kinds(half)
    known = {kind.__name__ for each in ("sync", "async") for kind in kinds(each).values()}
    of_interpreter = {name: each for name, each in vars(e2b_code_interpreter).items() if name[0] != "_"}
    for name, exported in {name: getattr(e2b, name) for name in e2b.__all__}.items() | of_interpreter.items():
        if inspect.isfunction(exported):
            assert name in FUNCTIONS, name
        elif inspect.isclass(exported) and not issubclass(exported, (BaseException, dict, str)):
            assert name in known | PARTS or not methods(exported), name
    return {f"{name}.{each}" for name, kind in listed.items() for each in methods(kind)} | {*FUNCTIONS}


class Record:
    """Notes the calls that a script makes itself, not those that the SDK makes, once they return.

    In the asynchronous half the script gets what a coroutine returns: the event loop runs during each call.
    """

    def __init__(self, half: str) -> None:
        self.called: set[str] = set()
        self.loop = asyncio.new_event_loop() if half == "async" else None
        for name, kind in kinds(half).items():
            for each in methods(kind):
                setattr(kind, each, _Noted(self, f"{name}.{each}", inspect.getattr_static(kind, each)))
        for name in FUNCTIONS:
            setattr(e2b, name, self.noted(name, getattr(e2b, name)))

    def noted(self, name: str, function: Any) -> Any:
        @functools.wraps(function, updated=())
        def call(*positional: Any, **named: Any) -> Any:
            if sys._getframe(1).f_globals["__name__"].partition(".")[0] in ("e2b", "e2b_code_interpreter"):
                return function(*positional, **named)
            if self.loop is None:
                returned = function(*positional, **named)
            else:
                returned = self.loop.run_until_complete(_finished(function, positional, named))
            self.called.add(name)
            return returned

        return call

    def report(self) -> str:
        return json.dumps(sorted(self.called))


async def _finished(function: Any, positional: Any, named: Any) -> Any:
    returned = function(*positional, **named)
    return await returned if inspect.isawaitable(returned) else returned


class _Noted:
    """A method in the place of the SDK's own, which it calls."""

    def __init__(self, record: Record, name: str, original: Any) -> None:
        self._record, self._name, self._original = record, name, original

    def __get__(self, instance: object, owner: type) -> Any:
        return self._record.noted(self._name, self._original.__get__(instance, owner))


if __name__ == "__main__":
    print(json.dumps(sorted(surface(sys.argv[1]))))
