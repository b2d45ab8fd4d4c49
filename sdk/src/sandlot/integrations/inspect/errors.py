"""Translates the SDK's errors to those that Inspect's providers raise, so that a tool call reports them to the model.

What is nobody's fault but the infrastructure's stays an error of the SDK: Inspect ends the sample with it, scores
nothing, and runs the sample again with `--retry-on-error`.
"""
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Generator
from contextlib import contextmanager

from inspect_ai.util import OutputLimitExceededError, SandboxEnvironmentLimits, SandboxUnavailableError

from sandlot.errors import (
    BadRequest,
    DiskFull,
    FileConflict,
    FileDenied,
    FileError,
    FileMissing,
    FileTooLarge,
    SandboxLost,
)
from sandlot.integrations._lost_commands import BY_CODE


class ExecTimeout(TimeoutError):
    """A command's time was up; Inspect shows the model the output so far."""

    def __init__(self, message: str, *, truncated_output: str) -> None:
        super().__init__(message)
        self.truncated_output = truncated_output


@contextmanager
def translated_end() -> Generator[None, None, None]:
    """Raise what Inspect expects of a sandbox that its own code has ended."""
    try:
        yield
    except SandboxLost as error:
        # Inspect gives a SandboxUnavailableError in a tool call to the model and goes on, which is right for these
        # alone: after a lost node it would score what never had a chance.
        if error.verdict in BY_CODE:
            raise SandboxUnavailableError(f"the sandbox has ended ({error.verdict}): {error}") from error
        raise


@contextmanager
def translated_file_errors(file: str, *, writes: bool) -> Generator[None, None, None]:
    """Raise the OSError of a failed file call, with the name that the caller gave: a model may have made it up."""
    if "\0" in file:
        raise ValueError("embedded null byte")  # as open() words it, which Inspect looks for
    if writes and posixpath.basename(file) in ("", ".", ".."):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), file)
    try:
        file.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise _bad_path("the path is no text that UTF-8 can encode", ascii(file), writes=writes) from error
    try:
        with translated_end():
            yield
    except UnicodeEncodeError as error:
        raise _bad_path("the contents are no text that UTF-8 can encode", file, writes=writes) from error
    except FileTooLarge as error:
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from error
    except FileError as error:
        raise _os_error(error, file, writes=writes) from error
    except BadRequest as error:
        if error.field != "path":
            raise
        raise _bad_path(str(error), file, writes=writes) from error


def _bad_path(text: str, file: str, *, writes: bool) -> OSError:
    # Any other class would end the sample, and what the code does to its own files is its own affair.
    return (PermissionError if writes else FileNotFoundError)(errno.EINVAL, text, file)


def _os_error(error: FileError, file: str, *, writes: bool) -> OSError:
    if isinstance(error, FileMissing):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)
    if isinstance(error, FileConflict) and error.code == "is_directory":
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), file)
    number = errno.EINVAL
    if isinstance(error, FileDenied):
        number = errno.EACCES
    elif isinstance(error, DiskFull):
        number = errno.ENOSPC
    elif isinstance(error, FileConflict):
        number = errno.ENOTDIR
    if number == errno.EINVAL:
        return _bad_path(str(error).removeprefix(f"{error.path}: "), file, writes=writes)
    # See _bad_path.
    kind = PermissionError if writes or isinstance(error, FileDenied) else FileNotFoundError
    return kind(number, os.strerror(number), file)
