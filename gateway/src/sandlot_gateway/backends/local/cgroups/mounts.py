"""Reads where cgroup hierarchies are mounted and which groups this process is in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted hierarchy and this process's place in it."""

    controllers: frozenset[str]  # empty for version 2, which lists them in cgroup.controllers
    mount: Path
    own: Path  # the directory of this process's group
    v2: bool


def hierarchies(*, mountinfo: str | None = None, membership: str | None = None) -> list[Hierarchy]:
    """Return the mounted hierarchies that show this process's own group below the mount."""
    if mountinfo is None:
        mountinfo = Path("/proc/self/mountinfo").read_text()
    if membership is None:
        membership = Path("/proc/self/cgroup").read_text()
    places: dict[str, str] = {}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            places[controller] = path
    found: dict[Path, Hierarchy] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind_fields = left.split(), right.split()
        kind = kind_fields[0]
        if kind not in ("cgroup", "cgroup2"):
            continue
        root, mount = _unescape(fields[3]), Path(_unescape(fields[4]))
        options = set(kind_fields[2].split(",")) if len(kind_fields) > 2 else set()
        names = frozenset([""]) if kind == "cgroup2" else options & places.keys()
        if not names or not names & places.keys():
            continue
        place = places[next(iter(names))]
        inside = _below(place, root)
        if inside is not None:
            found[mount] = Hierarchy(
                controllers=frozenset() if kind == "cgroup2" else frozenset(names),
                mount=mount,
                own=mount / inside,
                v2=kind == "cgroup2",
            )
    return list(found.values())


def _below(path: str, root: str) -> str | None:
    if root == "/":
        return path.lstrip("/")
    if path == root:
        return ""
    if path.startswith(root + "/"):
        return path[len(root) + 1 :]
    return None


def _unescape(text: str) -> str:
    """Decode mountinfo's octal escapes of space, tab, newline and backslash."""
    if "\\" not in text:
        return text
    pieces = text.split("\\")
    return pieces[0] + "".join(chr(int(piece[:3], 8)) + piece[3:] for piece in pieces[1:])


def mount_points() -> list[Path]:
    """Return the mount points of all hierarchies."""
    return [hierarchy.mount for hierarchy in hierarchies()]
