"""Entry point, `python -m sandlot_sidecar.layer JOB FD[,FD...] [MAX_BYTES [SELECTION]]`: works on the files of one layer.

JOB is `export`, `store` (an export that does not compress), `restore`, `measure` or `share`. SELECTION is a JSON object
`{"paths": [...], "without": [...]}` for an export, and the number of entries for `share`, whose MAX_BYTES is the memory
that it may fill. All but a restore read the layers FD, the uppermost first, as one.

The first line of standard output is JSON: `{"entries", "bytes"}`, or `{"error", "message"}`. On export the archive
follows it; on restore and measure it is the result, and on share, too: then the copy lies in this process's mount namespace until its
standard input ends. The exit status is 0 on success, and after the first line of an export one of errors.BY_FILES if the
files are the cause.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import sys

from .attributes import measure
from .errors import BY_FILES, LayerError
from .selection import EVERYTHING, Selection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .walk import Entry

# An archive can demand any amount of memory, and a sidecar in a pod has 256 MiB: without a limit it would be killed.
MEMORY = 160 << 20


def main(arguments: list[str]) -> int:
    """Run the job and return the exit status."""
    job, fds = arguments[0], [int(fd) for fd in arguments[1].split(",")]
    limit = int(arguments[2]) if len(arguments) > 2 and arguments[2] else None
    os.umask(0)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        if job == "restore":
            _restore(fds[0], limit)
        elif job == "measure":
            _measure(fds, limit)
        elif job == "share":
            _share(fds, limit or 0, entries=int(arguments[3]))
        else:
            selection = _selection(arguments[3]) if len(arguments) > 3 else EVERYTHING
            _export(fds, limit, selection, compresses=job == "export")
    except LayerError as error:
        _say({"error": error.code, "message": error.message})
        return 1
    except BrokenPipeError:
        return 1
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        text = str(error.strerror or error)
        _say({"error": "disk_full" if full else "internal", "message": text})
        return 1
    except (ValueError, MemoryError) as error:
        # Only the files or the archive have sizes and names of this sort.
        found = by_files(error)
        exports = job != "restore"
        code = found.code if exports else "bad_request"
        _say(
            {
                "error": code,
                "message": found.message if exports else f"the archive is unreadable: {error!r}",
            }
        )
        return 1
    return 0


def by_files(error: ValueError | MemoryError) -> LayerError:
    """Return the error of an export that one of Python's own stands for."""
    if isinstance(error, MemoryError):
        return LayerError("too_large", "the files have too many or too long names or attributes: delete some")
    return LayerError("unreadable", f"a file has a name or an attribute that cannot be stored: {error!r}")


def _selection(text: str) -> Selection:
    document = json.loads(text)
    return Selection(paths=tuple(document["paths"]), without=tuple(document["without"]))


def _measured(
    fds: list[int], limit: int | None, selection: Selection, check: Callable[[Entry], None] | None = None
) -> tuple[int, int]:
    entries, size = measure(fds, selection, check=check)
    if limit is not None and size > limit:
        text = f"the sandbox's files add up to {size} bytes, over the limit of {limit}: delete some"
        raise LayerError("too_large", text)
    return entries, size


def _measure(fds: list[int], limit: int | None) -> None:
    from . import share

    entries, size = _measured(fds, limit, EVERYTHING, share.refuse_link)
    _say({"entries": entries, "bytes": size})


def _share(fds: list[int], room: int, *, entries: int) -> None:
    from . import share  # each job imports only its own part: a copy takes no longer than that

    entries, size = share.copy(fds, entries=entries, room=room)
    _say({"entries": entries, "bytes": size})
    sys.stdin.buffer.read()


def _export(fds: list[int], limit: int | None, selection: Selection, *, compresses: bool) -> None:
    entries, size = _measured(fds, limit, selection)
    from .export import Exporter

    _say({"entries": entries, "bytes": size})
    exporter = Exporter(sys.stdout.buffer, max_bytes=limit, selection=selection, compresses=compresses)
    try:
        exporter.run(fds)
    except (LayerError, OSError, ValueError, MemoryError) as error:
        # Standard output belongs to the archive by now, which the reader sees as truncated.
        if isinstance(error, (ValueError, MemoryError)):
            error = by_files(error)
        sys.stderr.write(f"sandlot_sidecar.layer: {error}\n")
        sys.stderr.flush()
        os._exit(BY_FILES.get(error.code, 1) if isinstance(error, LayerError) else 1)
    if exporter.skipped:
        text = f"{exporter.skipped} entries are not in the archive: code replaced them faster than they can be read"
        sys.stderr.write(f"sandlot_sidecar.layer: {text}\n")


def _restore(fd: int, limit: int | None) -> None:
    from .restore import Restorer

    restorer = Restorer(fd, max_bytes=limit)
    restorer.run(sys.stdin.buffer)
    _say({"entries": restorer.entries, "bytes": restorer.bytes})


def _say(document: dict[str, object]) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.write(json.dumps(document).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
