"""Run untrusted code in isolated sandboxes.

    from sandlot import Sandbox

    with Sandbox.create() as box:
        print(box.exec("echo hello").stdout)

Names are imported on first use, so that `import sandlot` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from sandlot._version import __version__

if TYPE_CHECKING:
    from sandlot._async.accounting import AsyncAccounting
    from sandlot._async.client import AsyncClient
    from sandlot._async.events import AsyncEvents
    from sandlot._async.files import AsyncFiles
    from sandlot._async.groups import AsyncGroup
    from sandlot._async.pools import AsyncPools
    from sandlot._async.process import AsyncProcess
    from sandlot._async.python import AsyncPythonContext
    from sandlot._async.run import AsyncRun, AsyncRuns
    from sandlot._async.sandbox import AsyncSandbox
    from sandlot._async.stream import AsyncOpStream
    from sandlot._async.verifier import AsyncVerifier
    from sandlot._async.warmups import AsyncImageWarmups
    from sandlot._async.watch import AsyncFileWatch
    from sandlot._sync.accounting import Accounting
    from sandlot._sync.build import build
    from sandlot._sync.client import Client
    from sandlot._sync.events import Events
    from sandlot._sync.files import Files
    from sandlot._sync.groups import Group
    from sandlot._sync.pools import Pools
    from sandlot._sync.process import Process
    from sandlot._sync.python import PythonContext
    from sandlot._sync.run import Run, Runs
    from sandlot._sync.sandbox import Sandbox
    from sandlot._sync.stream import OpStream
    from sandlot._sync.verifier import Verifier
    from sandlot._sync.warmups import ImageWarmups
    from sandlot._sync.watch import FileWatch
    from sandlot.accounting import Quota, UsageReport, UsageRow
    from sandlot.builds import Built
    from sandlot.cells import CellError, CellResult, CellStatus, RichOutput
    from sandlot.errors import (
        ApiError,
        AuthError,
        BadRequest,
        BuildFailed,
        Busy,
        CommandFailed,
        ConfigError,
        Conflict,
        ConnectionFailed,
        DiskFull,
        DockerfileError,
        EventsExpired,
        FileConflict,
        FileDenied,
        FileError,
        FileMissing,
        FilesRefused,
        FileTooLarge,
        NotFound,
        OpConflict,
        OpExpired,
        PythonContextEnded,
        RunLost,
        SandboxLost,
        SandlotError,
        ServerError,
        StartFailed,
        Unhealthy,
        WaitTimeout,
    )
    from sandlot.file_records import FileEvent, TransferProgress
    from sandlot.models import (
        CheckpointInfo,
        DeleteResult,
        Event,
        ExecResult,
        Exit,
        Exposure,
        FileInfo,
        ImageFailure,
        NetworkPolicy,
        PoolInfo,
        PoolReuse,
        Progress,
        SandboxInfo,
        Stderr,
        Stdout,
        Usage,
        Verdict,
        WarmupInfo,
    )
    from sandlot.runs import RunCommands, RunInfo, RunReport, RunStarts, SlowCommand
    from sandlot.sandbox_events import SandboxEvent

__all__ = [
    "Accounting",
    "ApiError",
    "AsyncAccounting",
    "AsyncClient",
    "AsyncEvents",
    "AsyncFileWatch",
    "AsyncFiles",
    "AsyncGroup",
    "AsyncImageWarmups",
    "AsyncOpStream",
    "AsyncPools",
    "AsyncProcess",
    "AsyncPythonContext",
    "AsyncRun",
    "AsyncRuns",
    "AsyncSandbox",
    "AsyncVerifier",
    "AuthError",
    "BadRequest",
    "BuildFailed",
    "Built",
    "Busy",
    "CellError",
    "CellResult",
    "CellStatus",
    "CheckpointInfo",
    "Client",
    "CommandFailed",
    "ConfigError",
    "Conflict",
    "ConnectionFailed",
    "DeleteResult",
    "DiskFull",
    "DockerfileError",
    "Event",
    "Events",
    "EventsExpired",
    "ExecResult",
    "Exit",
    "Exposure",
    "FileConflict",
    "FileDenied",
    "FileError",
    "FileEvent",
    "FileInfo",
    "FileMissing",
    "FileTooLarge",
    "FileWatch",
    "Files",
    "FilesRefused",
    "Group",
    "ImageFailure",
    "ImageWarmups",
    "NetworkPolicy",
    "NotFound",
    "OpConflict",
    "OpExpired",
    "OpStream",
    "PoolInfo",
    "PoolReuse",
    "Pools",
    "Process",
    "Progress",
    "PythonContext",
    "PythonContextEnded",
    "Quota",
    "RichOutput",
    "Run",
    "RunCommands",
    "RunInfo",
    "RunLost",
    "RunReport",
    "RunStarts",
    "Runs",
    "Sandbox",
    "SandboxEvent",
    "SandboxInfo",
    "SandboxLost",
    "SandlotError",
    "ServerError",
    "SlowCommand",
    "StartFailed",
    "Stderr",
    "Stdout",
    "TransferProgress",
    "Unhealthy",
    "Usage",
    "UsageReport",
    "UsageRow",
    "Verdict",
    "Verifier",
    "WaitTimeout",
    "WarmupInfo",
    "__version__",
    "build",
]

_FLAVOURED = {
    "Accounting": "accounting",
    "Client": "client",
    "Events": "events",
    "FileWatch": "watch",
    "Files": "files",
    "Group": "groups",
    "ImageWarmups": "warmups",
    "OpStream": "stream",
    "Pools": "pools",
    "Process": "process",
    "PythonContext": "python",
    "Run": "run",
    "Runs": "run",
    "Sandbox": "sandbox",
    "Verifier": "verifier",
}
_MODELS = frozenset(
    [
        "CheckpointInfo",
        "DeleteResult",
        "Event",
        "ExecResult",
        "Exit",
        "Exposure",
        "FileInfo",
        "ImageFailure",
        "NetworkPolicy",
        "PoolInfo",
        "PoolReuse",
        "Progress",
        "SandboxInfo",
        "Stderr",
        "Stdout",
        "Usage",
        "Verdict",
        "WarmupInfo",
    ]
)
_FILES = frozenset(["FileEvent", "TransferProgress"])
_CELLS = frozenset(["CellError", "CellResult", "CellStatus", "RichOutput"])
_ACCOUNTS = frozenset(["Quota", "UsageReport", "UsageRow"])

_RUNS = frozenset(["RunCommands", "RunInfo", "RunReport", "RunStarts", "SlowCommand"])


def __getattr__(name: str) -> object:
    plain = name.removeprefix("Async")
    if plain in _FLAVOURED:
        module = f"sandlot._{'async' if name != plain else 'sync'}.{_FLAVOURED[plain]}"
    elif name in _MODELS:
        module = "sandlot.models"
    elif name in _FILES:
        module = "sandlot.file_records"
    elif name == "SandboxEvent":
        module = "sandlot.sandbox_events"
    elif name == "Built":
        module = "sandlot.builds"
    elif name == "build":
        module = "sandlot._sync.build"
    elif name in _CELLS:
        module = "sandlot.cells"
    elif name in _RUNS:
        module = "sandlot.runs"
    elif name in _ACCOUNTS:
        module = "sandlot.accounting"
    elif name in __all__:
        module = "sandlot.errors"
    else:
        raise AttributeError(f"module 'sandlot' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return __all__
