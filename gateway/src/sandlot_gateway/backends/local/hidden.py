"""What of this machine no sandbox of the host's root may see: secrets of this gateway and of others beside it."""

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
_FRESH = 10.0  # seconds a look at the machine's processes counts; it costs some 20 µs a process


class Hidden:
    """The paths to mask: what was given, and the state directories of other stacks as far as they are known."""

    def __init__(self, *, own: Sequence[Path]) -> None:
        self._own = tuple(own)
        self._lock = threading.Lock()
        self._others: tuple[Path, ...] = ()
        self._looked: float | None = None

    def paths(self) -> tuple[str, ...]:
        """Absolute, each also without symbolic links, none below another. Blocks: for threads."""
        with self._lock:
            if self._looked is None or time.monotonic() - self._looked > _FRESH:
                self._others = (*usual_state_dirs(), *running_state_dirs())
                self._looked = time.monotonic()
            return without_links((*self._own, *self._others))


def without_links(paths: Iterable[Path]) -> tuple[str, ...]:
    # A masked link would leave what it points at open under its real name.
    both = {os.path.normpath(form) for path in paths for form in (path.absolute(), path.resolve())}
    found: list[str] = []
    for path in sorted(both):
        if not any(path.startswith(f"{parent}/") for parent in found):
            found.append(path)
    return tuple(found)


def usual_state_dirs() -> list[Path]:
    """Where `sandlot` keeps its state by default, for every user of this machine; those that are there.

    /run, with the runtime directories of all users in it, is empty in a sandbox anyway.
    """
    homes = {Path(user.pw_dir) for user in pwd.getpwall() if user.pw_dir.startswith("/")}
    homes |= {Path.home()}
    candidates = [home / ".local" / "state" / "sandlot" for home in homes]
    candidates += [Path("/var/lib/sandlot")]
    if home := os.environ.get("SANDLOT_HOME"):
        candidates.append(Path(home).expanduser())
    return [path for path in candidates if _is_dir(path)]


def running_state_dirs(proc: Path = _PROC) -> list[Path]:
    """The state directories of the sidecars and gateways that run now, by their command lines."""
    found: set[Path] = set()
    for pid, arguments in command_lines(proc):
        if b"sandlot_sidecar" in arguments or b"sandlot_gateway" in arguments:
            named = [path for path in _named(arguments) if path not in found]
            # Code in a sandbox can put on any command line; it must not have /usr masked for everybody.
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
