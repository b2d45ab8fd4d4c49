"""The paths to hide from sandboxes on the host's root: secrets of this and other gateways on the machine."""

from __future__ import annotations

import os
import pwd
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandlot_contract.ids import is_instance_id

from .processes import command_lines

_PROC = Path("/proc")
_FRESH = 10.0  # seconds to cache the scan of processes, which costs some 20 µs a process


class Hidden:
    """The paths to mask: the given ones and the known state directories of other stacks."""

    def __init__(self, *, own: Sequence[Path]) -> None:
        self._own = tuple(own)
        self._lock = threading.Lock()
        self._others: tuple[Path, ...] = ()
        self._looked: float | None = None

    def paths(self) -> tuple[str, ...]:
        """Return absolute paths, also with symlinks resolved, none below another. Blocks: run it in a thread."""
        with self._lock:
            if self._looked is None or time.monotonic() - self._looked > _FRESH:
                self._others = (*usual_state_dirs(), *running_state_dirs())
                self._looked = time.monotonic()
            return without_links((*self._own, *self._others))


def without_links(paths: Iterable[Path]) -> tuple[str, ...]:
    # Masking only a link would leave its target visible under its real name.
    both = {os.path.normpath(form) for path in paths for form in (path.absolute(), path.resolve())}
    found: list[str] = []
    for path in sorted(both):
        if not any(path.startswith(f"{parent}/") for parent in found):
            found.append(path)
    return tuple(found)


def usual_state_dirs() -> list[Path]:
    """Return the existing default state directories of `sandlot`, for every user of this machine.

    /run, with the users' runtime directories, is empty in a sandbox anyway.
    """
    homes = {Path(user.pw_dir) for user in pwd.getpwall() if user.pw_dir.startswith("/")}
    homes |= {Path.home()}
    candidates = [home / ".local" / "state" / "sandlot" for home in homes]
    candidates += [Path("/var/lib/sandlot")]
    if home := os.environ.get("SANDLOT_HOME"):
        candidates.append(Path(home).expanduser())
    return [path for path in candidates if _is_dir(path)]


def running_state_dirs(proc: Path = _PROC) -> list[Path]:
    """Return the state directories of running sidecars and gateways, from their command lines."""
    found: set[Path] = set()
    for pid, arguments in command_lines(proc):
        if b"sandlot_sidecar" in arguments or b"sandlot_gateway" in arguments:
            named = [path for path in _named(arguments) if path not in found]
            # Code in a sandbox can fake any command line, and must not get /usr masked for everyone.
            if named and _is_outside(proc, pid):
                found.update(path for path in named if is_state_dir(path))
    return sorted(found)


def _named(arguments: list[bytes]) -> list[Path]:
    paths: list[Path] = []
    for option, value in zip(arguments, [*arguments[1:], b""], strict=True):
        name, equals, given = option.partition(b"=")
        text = os.fsdecode(given if equals else value)
        if not text.startswith("/"):
            continue
        if name == b"--state-dir":
            paths.append(Path(text))
        elif name == b"--config":
            instance = Path(text).parent
            if is_instance_id(instance.name) and instance.parent.name == "instances":
                paths.append(instance.parent.parent)
    return paths


def _is_outside(proc: Path, pid: int) -> bool:
    try:
        return os.readlink(proc / str(pid) / "ns/pid") == os.readlink(proc / "self/ns/pid")
    except OSError:
        return False


def is_state_dir(path: Path) -> bool:
    return _is_dir(path / "instances") and (path / "lock").exists()


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False
