"""What the executor answers when it cannot do what was asked."""

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

# What code can make of a file of its own; of anything else they would be a failure of the machine's.
FILE_CODES = {
    **CODES,
    errno.EAGAIN: "permission",  # under a lease
    errno.ENXIO: "bad_request",
    errno.EIO: "bad_request",
    errno.ESRCH: "bad_request",  # of a process that has ended
    errno.ENODEV: "bad_request",
    errno.ENODATA: "bad_request",
    errno.EOPNOTSUPP: "bad_request",
    errno.EOVERFLOW: "bad_request",
}


class ExecutorError(Exception):
    """Carries a code of the wire, a sentence, and the field at fault if there is one."""

    def __init__(self, code: str, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field


class SetupError(ExecutorError):
    """The kernel does not allow the sandbox to be made; the message says what to change."""

    def __init__(self, message: str) -> None:
        super().__init__("setup", message)


def from_os(error: OSError, *, field: str | None = None) -> ExecutorError:
    """Translate a system call's failure; with a field it is one on the file that the field names."""
    code = (CODES if field is None else FILE_CODES).get(error.errno or 0, "internal")
    return ExecutorError(code, str(error.strerror or error), field=field)
