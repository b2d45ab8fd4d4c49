"""The directory that a build takes files from: what .dockerignore leaves, and a hash of it."""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sandlot._dockerfile.ignore import Ignore, has_wildcard, name_matches

PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, directory or link; `path` is relative to the root of its origin, and "" is that root."""

    path: str
    kind: str  # "file", "dir" or "symlink"
    mode: int
    size: int = 0
    target: str = ""
    owner: tuple[int, int] | None = None  # None: root, as Docker makes of the context's owners


class SourceMissing(Exception):
    """Raised when a source of COPY does not exist; the message names it."""


class Context:
    """A directory on this machine, without what its .dockerignore leaves out."""

    def __init__(self, root: Path, ignore: Ignore) -> None:
        self.root = root
        self._ignore = ignore

    def local(self, path: str) -> Path:
        return self.root / path

    def stat(self, path: str) -> Entry | None:
        """Return the entry of a path without following it, or None if there is none or it is left out."""
        if path and self._ignore.ignores(path) and not self._ignore.may_include_below(path):
            return None
        try:
            about = self.local(path).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISDIR(about.st_mode):
            return Entry(path, "dir", stat.S_IMODE(about.st_mode) if path else 0o755)
        if path and self._ignore.ignores(path):
            return None
        if stat.S_ISLNK(about.st_mode):
            return Entry(path, "symlink", 0o777, target=os.readlink(self.local(path)))
        if stat.S_ISREG(about.st_mode):
            return Entry(path, "file", stat.S_IMODE(about.st_mode), size=about.st_size)
        return None  # Docker skips sockets, too

    def children(self, path: str) -> list[Entry]:
        """Return the entries of a directory, sorted by name."""
        names = sorted(os.listdir(self.local(path)))
        found = (self.stat(f"{path}/{name}" if path else name) for name in names)
        return [entry for entry in found if entry is not None]

    def below(self, path: str) -> Iterator[Entry]:
        """Yield everything below a directory, directories before what is in them."""
        for entry in self.children(path):
            if entry.kind != "dir":
                yield entry
                continue
            inside = list(self.below(entry.path))
            # A directory that is left out exists only for an exception below it.
            if inside or not self._ignore.ignores(entry.path):
                yield entry
                yield from inside

    def resolve(self, path: str) -> str | None:
        """Follow the links of a path within the context; None if they lead nowhere."""
        for _ in range(40):
            parts = path.split("/") if path else []
            for count in range(1, len(parts) + 1):
                here = "/".join(parts[:count])
                try:
                    target = os.readlink(self.local(here))
                except OSError:
                    continue
                above = "" if target.startswith("/") else posixpath.dirname(here)
                path = inside(posixpath.join("/", above, target.lstrip("/"), *parts[count:]))
                break
            else:
                return path
        return None

    def find(self, source: str, *, written: str | None = None) -> list[tuple[str, Entry]]:
        """Return names and entries of what a source of COPY names, with links followed. Raises SourceMissing.

        `written` is the source in an error, where its variables have no values.
        """
        clean = inside(source)
        paths = self._matches(clean) if has_wildcard(clean) else [clean]
        found: list[tuple[str, Entry]] = []
        for path in paths:
            real = self.resolve(path)
            entry = None if real is None else self.stat(real)
            if entry is not None:
                found.append((path.rpartition("/")[2], entry))
            elif not has_wildcard(clean):
                raise SourceMissing(
                    f"{(written or source)[:200]!r} is not in the context: add it, or correct .dockerignore"
                )
        return found

    def _matches(self, pattern: str) -> list[str]:
        found = [""]
        for part in pattern.split("/"):
            following: list[str] = []
            for path in found:
                real = self.resolve(path)
                if real is None or not self.local(real).is_dir():
                    continue
                names = [entry.path.rpartition("/")[2] for entry in self.children(real)]
                following += [f"{path}/{name}".lstrip("/") for name in names if name_matches(part, name)]
            found = following
        return found

    def digest(self, sources: Iterable[str]) -> str:
        """Return a hash of the files that sources name: contents, modes and links. Raises SourceMissing, OSError."""
        total = hashlib.sha256()
        for source in sources:
            for name, entry in self.find(source):
                below = self.below(entry.path) if entry.kind == "dir" else ()
                total.update(f"{name}\0".encode("utf-8", "surrogateescape"))
                for one in (entry, *below):
                    total.update(f"{len(source)}:{source}\0".encode("utf-8", "surrogateescape"))
                    total.update(self._digest_of(one))
        return total.hexdigest()

    def _digest_of(self, entry: Entry) -> bytes:
        total = hashlib.sha256()
        head = (entry.path, entry.kind, f"{entry.mode:o}", entry.target)
        total.update("\0".join(head).encode("utf-8", "surrogateescape"))
        if entry.kind == "file":
            with self.local(entry.path).open("rb") as file:
                while piece := file.read(PIECE):
                    total.update(piece)
        return total.digest()


def inside(path: str) -> str:
    """Return a path relative to its root; it cannot lead above it."""
    return posixpath.normpath(posixpath.join("/", path)).lstrip("/")


def open_context(root: Path, dockerfile: Path) -> Context:
    """Return the context with the .dockerignore of its Dockerfile, or its own. Raises DockerfileError, OSError."""
    for path in (dockerfile.with_name(f"{dockerfile.name}.dockerignore"), root / ".dockerignore"):
        try:
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            continue
        return Context(root, Ignore(text, file=str(path)))
    return Context(root, Ignore())
