"""Turns the SDK's errors of files into Python's, which frameworks expect of a file operation."""

from __future__ import annotations

import errno

from sandlot.errors import BadRequest, DiskFull, FileDenied, FileError, FileMissing, FileTooLarge

_NUMBERS = {
    "exists": errno.EEXIST,
    "not_empty": errno.ENOTEMPTY,
    "is_directory": errno.EISDIR,
    "not_a_directory": errno.ENOTDIR,
}
_CLASSES: tuple[tuple[type[FileError], int], ...] = (
    (FileMissing, errno.ENOENT),
    (FileDenied, errno.EACCES),
    (FileTooLarge, errno.EFBIG),
    (DiskFull, errno.ENOSPC),
)


def os_error(error: FileError | BadRequest, path: str) -> OSError:
    """Return the OSError of a failed file operation, of the subclass that its number has."""
    number = _NUMBERS.get(error.code)
    for kind, its in _CLASSES:
        if number is None and isinstance(error, kind):
            number = its
    return OSError(errno.EINVAL if number is None else number, str(error), path)
