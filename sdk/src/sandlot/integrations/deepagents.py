"""A LangChain Deep Agents backend over a Sandlot sandbox: `create_deep_agent(backend=SandlotBackend(box))`."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import posixpath
from collections.abc import Callable
from functools import partial

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from sandlot._sync.sandbox import Sandbox
from sandlot.errors import BadRequest, FileDenied, FileError, FileMissing, SandboxLost, StartFailed
from sandlot.integrations._cancellable_threads import in_cancellable_thread
from sandlot.integrations._lost_commands import KILLED, ended_by_code, own_end
from sandlot.models import Verdict

TIMED_OUT = 124  # as the program `timeout` ends, which models know


class SandlotBackend(BaseSandbox):
    """Runs an agent's commands and file operations in a sandbox, which stays the caller's to delete.

    `timeout` is that of commands without their own, in seconds; None is no limit. `working_dir` is where commands
    start. A sandbox that was lost, deleted or at its deadline raises `sandlot.SandboxLost` and ends the agent's run;
    every end of the code is output for the model, also when the code has ended the whole sandbox.
    """

    def __init__(
        self, box: Sandbox, *, timeout: float | None = 1800.0, working_dir: str | None = None
    ) -> None:
        self._box = box
        self._timeout = timeout
        self._working_dir = working_dir

    @property
    def box(self) -> Sandbox:
        """The sandbox."""
        return self._box

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self._box.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command; a `timeout` of 0 is no limit."""
        limit = self._timeout if timeout is None else timeout or None
        try:
            result = own_end(self._box.exec(command, timeout=limit, cwd=self._working_dir), self._box.id)
        except StartFailed as error:
            return ExecuteResponse(output=str(error), exit_code=126)
        except SandboxLost as error:
            if (ended := ended_by_code(str(error), error.verdict)) is None:
                raise
            return ExecuteResponse(output=str(ended), exit_code=KILLED)
        output = result.stdout
        if result.stderr.strip():
            output += f"\n<stderr>{result.stderr.strip()}</stderr>"
        code = TIMED_OUT if result.verdict == Verdict.TIMEOUT else result.exit_code
        return ExecuteResponse(output=output, exit_code=code, truncated=result.truncated)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command; cancelling ends it."""
        return await in_cancellable_thread(partial(self.execute, command, timeout=timeout))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files; what fails of one is in its response."""
        return [
            FileUploadResponse(path=path, error=_error_of(path, partial(self._box.files.write, path, data)))
            for path, data in files
        ]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files; what fails of one is in its response."""
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        content: list[bytes] = []
        error = _error_of(path, lambda: content.append(self._box.files.read(path)))
        return FileDownloadResponse(path=path, content=content[0] if content else None, error=error)


_NAMES = {"is_directory": "is_directory", "not_a_directory": "invalid_path"}


def _error_of(path: str, operation: Callable[[], object]) -> str | None:
    """Return Deep Agents' name of what fails, or the server's text if it has none; a lost sandbox raises.

    One that its code has ended is no error of the agent's run.
    """
    if not posixpath.isabs(path):
        return "invalid_path"
    try:
        operation()
    except FileMissing:
        return "file_not_found"
    except FileDenied:
        return "permission_denied"
    except FileError as error:
        return _NAMES.get(error.code) or str(error)
    except (BadRequest, ValueError):
        return "invalid_path"
    except SandboxLost as error:
        if (ended := ended_by_code(str(error), error.verdict)) is None:
            raise
        return str(ended)
    return None
