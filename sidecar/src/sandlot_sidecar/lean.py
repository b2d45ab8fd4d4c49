"""Imports asyncio and json without the modules that a sidecar never uses, which saves 4 MiB per sandbox.

asyncio imports ssl, logging, inspect, typing, traceback, subprocess and concurrent.futures (which import ast, dis,
tokenize, re, string, ...) for features that are not used here. Stubs replace these modules while asyncio and
httptools are imported, and are removed afterwards, so that later imports get the real ones. On a Python version
that does not work with the stubs, everything is imported as usual.
"""

from __future__ import annotations

import _heapq
import gc
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INTERNED = 3000  # more than the table holds before the fork, fewer than it holds afterwards


class _Anything:
    """Stub of a typing construct: subscripts, calls and unions return itself."""

    def __class_getitem__(cls, _item: object) -> type[_Anything]:
        return cls

    def __getitem__(self, _item: object) -> _Anything:
        return self

    def __call__(self, *arguments: object, **_keywords: object) -> Any:
        return arguments[0] if arguments else self

    def __or__(self, _other: object) -> _Anything:
        return self

    __ror__ = __or__


class _Logger:
    """Stub of asyncio's logger that writes to the sidecar's log."""

    def _report(self, message: object, *arguments: object, **_keywords: object) -> None:
        from .server import log

        try:
            text = str(message) % arguments if arguments else str(message)
        except (TypeError, ValueError):
            text = str(message)
        log.event("asyncio", detail=text[:2000])

    error = warning = exception = critical = _report

    def debug(self, *_arguments: object, **_keywords: object) -> None:
        return

    info = log = debug

    def isEnabledFor(self, _level: int) -> bool:
        return False


class _Refused(Exception):
    """Stub of exceptions that nothing here raises."""


def _is_coroutine_function(function: Any) -> bool:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and bool(code.co_flags & 0x80)


def _refuse(*_arguments: object, **_keywords: object) -> Any:
    raise RuntimeError("the sidecar does not load this part of the standard library (see lean.py)")


def _module(name: str, **names: object) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__dict__.update(names)
    return module


def _part(name: str) -> types.ModuleType:
    """Return an empty stub of a submodule of asyncio.

    The package reads its `__all__`, and then expects the submodule as an attribute.
    """
    module = _module(f"asyncio.{name}")

    def all_names(attribute: str) -> tuple[str, ...]:
        if attribute != "__all__":
            raise AttributeError(attribute)
        setattr(sys.modules["asyncio"], name, module)
        return ()

    module.__dict__["__getattr__"] = all_names
    return module


def _drop_watchers() -> None:
    """Remove asyncio's child watchers, most of its Unix part, so that later allocations reuse their memory."""
    import asyncio
    from asyncio import unix_events

    for name in [name for name in vars(unix_events) if name.endswith("ChildWatcher") and name[0] != "A"]:
        delattr(unix_events, name)
        asyncio.__dict__.pop(name, None)
    gc.collect()


def _stand_ins() -> dict[str, types.ModuleType | None]:
    anything = _Anything()
    typing = _module("typing", TYPE_CHECKING=False, Protocol=_Anything, Generic=_Anything, Any=_Anything)
    typing.__dict__["__getattr__"] = lambda name: anything
    base = _module("concurrent.futures._base", Future=_Refused, Error=_Refused, CancelledError=_Refused,
                   InvalidStateError=_Refused, TimeoutError=TimeoutError, PENDING="PENDING", CANCELLED="CANCELLED",
                   FINISHED="FINISHED")  # fmt: skip
    futures = _module("concurrent.futures", _base=base, Future=_Refused, Error=_Refused, CancelledError=_Refused,
                      InvalidStateError=_Refused, TimeoutError=TimeoutError, ThreadPoolExecutor=_refuse,
                      FIRST_COMPLETED="FIRST_COMPLETED", FIRST_EXCEPTION="FIRST_EXCEPTION",
                      ALL_COMPLETED="ALL_COMPLETED", wrap_future=_refuse)  # fmt: skip
    return {
        "ssl": None,
        "heapq": _heapq,  # asyncio uses only what is in C
        "logging": _module(
            "logging",
            getLogger=lambda name=None: _Logger(),
            DEBUG=10,
            INFO=20,
            WARNING=30,
            ERROR=40,
            CRITICAL=50,
        ),
        "inspect": _module(
            "inspect",
            iscoroutinefunction=_is_coroutine_function,
            isfunction=lambda value: isinstance(value, types.FunctionType),
            unwrap=lambda function: function,
            CORO_CREATED="CORO_CREATED",
        ),
        "typing": typing,
        "traceback": _module(
            "traceback",
            extract_stack=_refuse,
            walk_stack=_refuse,
            print_exc=_refuse,
            print_list=_refuse,
            format_list=_refuse,
            StackSummary=_Anything,
            format_exception_only=_refuse,
        ),
        "linecache": _module("linecache", checkcache=_refuse, getline=_refuse),
        "subprocess": _module("subprocess", PIPE=-1, STDOUT=-2, DEVNULL=-3, Popen=_refuse),
        "concurrent": _module("concurrent", futures=futures),
        "concurrent.futures": futures,
        "concurrent.futures._base": base,
        "asyncio.sslproto": _module("asyncio.sslproto"),
        "asyncio.staggered": _module("asyncio.staggered"),
        **{f"asyncio.{name}": _part(name) for name in ("queues", "subprocess", "taskgroups", "threads")},
        "asyncio.base_subprocess": _module("asyncio.base_subprocess", BaseSubprocessTransport=_Anything),
        "httptools.parser.url_parser": _module("httptools.parser.url_parser", parse_url=_refuse),
    }


class _Blanks:
    """Stub of the one regular expression that json uses while its C code is present: skips whitespace."""

    def __init__(self, *_pattern: object) -> None:
        self._end = 0

    def match(self, text: str, begin: int = 0) -> _Blanks:
        """Return a match that ends where the whitespace does."""
        length = len(text)
        while begin < length and text[begin] in " \t\n\r":
            begin += 1
        found = _Blanks()
        found._end = begin
        return found

    def end(self) -> int:
        return self._end


def grow_interned() -> None:
    """Grow the interpreter's table of interned strings to its final size before the fork.

    The modules of either process outgrow its 5,461 strings. If it grew after the fork, each process would have a table
    of 204 KiB of its own; this way they share most of one.
    """
    for number in range(INTERNED):
        sys.intern(f"sandlot {number}")


def import_json() -> bool:
    """Import json without `re`, whose compiler takes 0.5 MiB; return False if that failed and both were loaded."""
    if "json" in sys.modules or "re" in sys.modules:
        return False
    sys.modules["re"] = _module("re", compile=_Blanks, VERBOSE=0, MULTILINE=0, DOTALL=0)
    try:
        import json
        import json.decoder
        import json.encoder
        import json.scanner

        worked = (
            getattr(json.scanner, "c_make_scanner", None) is not None
            and getattr(json.encoder, "c_make_encoder", None) is not None
            and json.loads(' {"a": [1, "\\u00e9"] }\n') == {"a": [1, "\u00e9"]}
        )
    except Exception:
        worked = False
    finally:
        del sys.modules["re"]
    if not worked:
        for name in [name for name in sys.modules if name.partition(".")[0] == "json"]:
            del sys.modules[name]
        __import__("json")
    return worked


def import_asyncio() -> bool:
    """Import asyncio and httptools; return False if the stubs failed and the real modules were loaded."""
    if "asyncio" in sys.modules:
        return False
    before = set(sys.modules)
    stand_ins = {name: module for name, module in _stand_ins().items() if name not in sys.modules}
    sys.modules.update(stand_ins)  # type: ignore[arg-type]
    worked = True
    try:
        import asyncio

        import httptools  # noqa: F401

        asyncio.new_event_loop().close()
        _drop_watchers()
    except Exception:
        worked = False
    finally:
        for name in stand_ins:
            sys.modules.pop(name, None)
    if not worked:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ("asyncio", "httptools", "concurrent"):
                del sys.modules[name]
        sys.modules["ssl"] = None  # type: ignore[assignment]
        __import__("asyncio")
        del sys.modules["ssl"]  # the server's own TLS needs the real one
    return worked
