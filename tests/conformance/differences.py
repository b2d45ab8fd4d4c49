"""Compares what two places show of one image, and knows the differences that are meant."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# What user code relies on; the rest of a container's mounts is the runtime's business.
MOUNTS = {"/proc": "proc", "/sys": "sysfs", "/dev": "tmpfs", "/dev/shm": "tmpfs", "/dev/pts": "devpts", "/dev/mqueue": "mqueue"}  # fmt: skip
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "fd", "stdin", "stdout", "stderr", "shm", "pts", "ptmx", "mqueue")  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """`what` is a path or a field of the process; None: it is not there."""

    what: str
    attribute: str
    container: Any
    sandbox: Any

    def __str__(self) -> str:
        return f"{self.what} {self.attribute}: {self.container!r} in a container, {self.sandbox!r} in the sandbox"


@dataclass(frozen=True)
class Meant:
    """A difference on purpose."""

    why: str
    covers: Callable[[Difference], bool]


@dataclass(frozen=True)
class Seen:
    """What the probe has printed."""

    process: dict[str, Any]
    files: dict[str, dict[str, Any]]


def parse(process: str, tree: str = "") -> Seen:
    """Read the probe's lines."""
    files = {line["path"]: line for line in map(json.loads, tree.splitlines())}
    found = json.loads(process)
    mounts = found.pop("mounts")
    found |= {f"mount {point}": mounts.get(point, "none").split()[0] for point in MOUNTS}
    found |= {
        f"read-only {point}": mounts.get(point, "none").split()[-1].startswith("ro") for point in MOUNTS
    }
    devices = found.pop("devices")
    found |= {f"device {name}": devices.get(name) for name in DEVICES}
    environment = found.pop("environment")
    found |= {f"variable {name}": value for name, _, value in (each.partition("=") for each in environment)}
    return Seen(found, files)


def compare(container: Seen, sandbox: Seen) -> list[Difference]:
    """Return every difference."""
    found = _compare("process", container.process, sandbox.process)
    for path in sorted(container.files.keys() | sandbox.files.keys()):
        one, other = container.files.get(path), sandbox.files.get(path)
        if one is None or other is None:
            found.append(Difference(path, "type", one and one["type"], other and other["type"]))
        elif other["type"] == "refused":  # nothing else is known of it
            found.append(Difference(path, "type", one["type"], "refused"))
        else:
            found += _compare(path, one, other)
    return found


def _compare(what: str, one: dict[str, Any], other: dict[str, Any]) -> list[Difference]:
    return [
        Difference(what, key, one.get(key), other.get(key))
        for key in sorted(one.keys() | other.keys())
        if one.get(key) != other.get(key)
    ]


def not_meant(differences: Sequence[Difference], meant: Sequence[Meant]) -> list[str]:
    """Return those that nothing explains, as text."""
    return [str(each) for each in differences if not any(one.covers(each) for one in meant)]
