"""Every error the SDK raises: what the caller did wrong, what the server refused, and what the infrastructure lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandlot.models import ExecResult

INFRASTRUCTURE = frozenset(
    {
        "start_failed",
        "image_pull",
        "evicted",
        "node_lost",
        "sidecar_lost",
        "sandbox_lost",
        "sandbox_broken",
        "reset_failed",
    }
)


class SandlotError(Exception):
    """The base of all errors of this package."""


class ConfigError(SandlotError):
    """The client cannot know where its server is, or a local stack cannot be started here."""


class ConnectionFailed(SandlotError):
    """No usable answer came within the time allowed; `sent` says whether the request may have reached the server."""

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


class ApiError(SandlotError):
    """The server answered with an error; `status` is the HTTP status, `code` the server's name for it."""

    def __init__(self, message: str, *, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class AuthError(ApiError):
    """The API key or the sandbox's token was not accepted, or its role does not allow the call."""


class NotFound(ApiError):
    """There is no such sandbox, op, pool or exposure."""


class BadRequest(ApiError):
    """An argument was refused; `field` names it when the server said which."""

    def __init__(self, message: str, *, status: int = 400, code: str = "", field: str | None = None) -> None:
        super().__init__(message, status=status, code=code)
        self.field = field


class StartFailed(BadRequest):
    """The command never ran: its user or working directory does not exist; the message says which."""


class Conflict(ApiError):
    """The request does not fit the state of what it is about."""


class OpConflict(Conflict):
    """The op id is already in use by a different command."""


class OpExpired(ApiError):
    """The op ran, but its result is no longer kept."""


class Busy(ApiError):
    """The server is full and stayed so; it asked to come back in `retry_after` seconds."""

    def __init__(
        self, message: str, *, status: int = 503, code: str = "busy", retry_after: float | None = None
    ) -> None:
        super().__init__(message, status=status, code=code)
        self.retry_after = retry_after


class ServerError(ApiError):
    """The server failed in a way it has no better name for."""


class FileError(ApiError):
    """A file operation was refused; `path` is the path asked for."""

    def __init__(self, message: str, *, status: int = 0, code: str = "", path: str = "") -> None:
        super().__init__(message, status=status, code=code)
        self.path = path


class FileMissing(FileError):
    """There is no such file or directory in the sandbox."""


class FileDenied(FileError):
    """The file's mode or owner does not allow it."""


class FileConflict(FileError):
    """The path exists, is not empty, or is (or is not) a directory."""


class FileTooLarge(FileError):
    """The file is larger than this call reads."""


class DiskFull(FileError):
    """The sandbox's disk has no room for it."""


class SandboxLost(SandlotError):
    """The sandbox is gone, or lost the command: this is not the code's own result.

    `verdict` is why (docs/sidecar-contract.md lists them); `infrastructure` is true when neither the code nor
    the caller caused it, so that a trainer can mask the sample instead of scoring it.
    """

    def __init__(self, message: str, *, verdict: str = "sandbox_lost", sandbox_id: str = "") -> None:
        super().__init__(message)
        self.verdict = verdict
        self.sandbox_id = sandbox_id

    @property
    def infrastructure(self) -> bool:
        return self.verdict in INFRASTRUCTURE


class CommandFailed(SandlotError):
    """A command run with `check=True` did not end with exit code 0; `result` has its output."""

    def __init__(self, result: ExecResult) -> None:
        tail = (result.stderr or result.stdout).strip()[-400:]
        cause = "" if result.verdict == "exited" else f" ({result.verdict})"
        super().__init__(f"exit code {result.exit_code}{cause}" + (f": {tail}" if tail else ""))
        self.result = result


class WaitTimeout(SandlotError):
    """The sandbox or pool was not ready within the time the caller gave; a sandbox has been deleted again."""
