"""Every error the SDK raises: the caller's mistakes, the server's rejections, and infrastructure failures."""

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
        "run_lost",
    }
)


class SandlotError(Exception):
    """Base class of all errors of this package."""


class ConfigError(SandlotError):
    """The server's URL or API key is missing or invalid, or a local stack cannot be started here."""


class ConnectionFailed(SandlotError):
    """No usable response arrived in time; `sent` is true if the request may have reached the server."""

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


class ApiError(SandlotError):
    """The server responded with an error; `status` is the HTTP status, `code` the server's error code."""

    def __init__(self, message: str, *, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class AuthError(ApiError):
    """The server rejected the API key or the sandbox's token, or its role does not allow the call."""


class NotFound(ApiError):
    """The sandbox, op, pool or exposure does not exist."""


class BadRequest(ApiError):
    """The server rejected an argument; `field` names it if the server does."""

    def __init__(self, message: str, *, status: int = 400, code: str = "", field: str | None = None) -> None:
        super().__init__(message, status=status, code=code)
        self.field = field


class StartFailed(BadRequest):
    """The command never ran because its user or working directory does not exist; the message says which."""


class Conflict(ApiError):
    """The request conflicts with the current state of its resource."""


class RunLost(Conflict):
    """The run is over, or another holder has it: what this holder's sandboxes did is lost."""


class OpConflict(Conflict):
    """A different command already uses this op id."""


class OpExpired(ApiError):
    """The op ran, but the sandbox has discarded its result."""


class EventsExpired(ApiError):
    """Events after a cursor are not kept any more: list the sandboxes, and go on from `cursor`, the oldest that is."""

    def __init__(self, message: str, *, cursor: str) -> None:
        super().__init__(message, status=410, code="expired")
        self.cursor = cursor


class Busy(ApiError):
    """The server had no capacity in all attempts; it asked for a retry after `retry_after` seconds."""

    def __init__(
        self, message: str, *, status: int = 503, code: str = "busy", retry_after: float | None = None
    ) -> None:
        super().__init__(message, status=status, code=code)
        self.retry_after = retry_after


class ServerError(ApiError):
    """The server failed with an error that has no class of its own here."""


class FileError(ApiError):
    """A file operation failed; `path` is the path in the request."""

    def __init__(self, message: str, *, status: int = 0, code: str = "", path: str = "") -> None:
        super().__init__(message, status=status, code=code)
        self.path = path


class FileMissing(FileError):
    """The file or directory does not exist in the sandbox."""


class FileDenied(FileError):
    """The file's mode or owner does not allow it."""


class FileConflict(FileError):
    """The path exists, is not empty, or is (or is not) a directory."""


class FileTooLarge(FileError):
    """The file is larger than this call can read."""


class DiskFull(FileError):
    """The sandbox's disk has no space left."""


class FilesRefused(SandlotError):
    """What the sandbox's own code wrote cannot be saved, such as too many bytes; a trainer scores it, usually 0."""


class SandboxLost(SandlotError):
    """The sandbox ended or lost the command, so this is not the result of the code itself.

    `verdict` is the cause (docs/sidecar-contract.md lists them); `infrastructure` is true when neither the code
    nor the caller caused it, so that a trainer can mask the sample instead of scoring it.
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


class PythonContextEnded(SandlotError):
    """A Python context has no process for the cell: code ended it, it was closed, or its output is used up.

    The cell has not run. `restart` gives the context a new process, without the old one's state. `verdict` is that of
    the context's command, if that has ended.
    """

    def __init__(self, message: str, *, verdict: str | None = None) -> None:
        super().__init__(message)
        self.verdict = verdict


class WaitTimeout(SandlotError):
    """The sandbox or pool was not ready before the caller's timeout; a sandbox that `create` made is deleted."""


class Unhealthy(SandlotError):
    """The healthcheck of a service failed as often as its compose file lets it; the group is deleted."""


class DockerfileError(SandlotError):
    """A Dockerfile cannot be read or replayed; `file`, `line` and `instruction` say where."""

    def __init__(
        self, message: str, *, file: str = "Dockerfile", line: int = 0, instruction: str = ""
    ) -> None:
        super().__init__(
            f"{file}:{line}: {instruction}: {message}" if instruction else f"{file}:{line}: {message}"
        )
        self.file = file
        self.line = line
        self.instruction = instruction


class BuildFailed(DockerfileError):
    """An instruction failed because of its own code: `exit_code`, `verdict` and `output` (its end) say how.

    `exit_code` is None for an instruction that is not RUN.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str = "Dockerfile",
        line: int = 0,
        instruction: str = "",
        exit_code: int | None = None,
        verdict: str = "exited",
        output: str = "",
    ) -> None:
        super().__init__(message, file=file, line=line, instruction=instruction)
        self.exit_code = exit_code
        self.verdict = verdict
        self.output = output
