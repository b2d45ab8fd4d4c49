"""The executor's errors and their codes on the wire."""

from __future__ import annotations

import errno

CODES = {
    errno.ENOENT: "not_found",
    errno.EEXIST: "exists",
    errno.ENOTEMPTY: "not_empty",
    errno.EISDIR: "is_directory",
    errno.ENOTDIR: "not_a_directory",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.EROFS: "permission",
    errno.EBUSY: "permission",
    errno.EXDEV: "permission",
    errno.ETXTBSY: "permission",
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.EFBIG: "disk_full",
    errno.ELOOP: "bad_request",
    errno.ENAMETOOLONG: "bad_request",
    errno.EINVAL: "bad_request",
    errno.ECONNREFUSED: "refused",
    errno.ETIMEDOUT: "refused",
}

# User code can cause these on its own files; elsewhere they mean a failure of the host.
FILE_CODES = {
    **CODES,
    errno.ELOOP: "bad_path",
    errno.ENAMETOOLONG: "bad_path",
    errno.EINVAL: "bad_path",
    errno.EAGAIN: "permission",  # under a lease
    errno.ENXIO: "bad_path",
    errno.EIO: "bad_path",
    errno.ESRCH: "bad_path",  # a /proc file of a process that has ended
    errno.ENODEV: "bad_path",
    errno.ENODATA: "bad_path",
    errno.EOPNOTSUPP: "bad_path",
    errno.EOVERFLOW: "bad_path",
}


class ExecutorError(Exception):
    """A failed request: a wire code, a message, and the invalid field if any."""

    def __init__(self, code: str, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field


class SetupError(ExecutorError):
    """The sandbox cannot be created; the message says what to change."""

    def __init__(self, message: str) -> None:
        super().__init__("setup", message)


def from_os(error: OSError, *, field: str | None = None) -> ExecutorError:
    """Translate an OSError; `field` names the request field that holds the file's path."""
    code = (CODES if field is None else FILE_CODES).get(error.errno or 0, "internal")
    return ExecutorError(code, str(error.strerror or error), field=field)
