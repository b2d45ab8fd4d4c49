"""The directories that one watch has, by the kernel's numbers for them, without I/O."""

from __future__ import annotations

MOST_PATH = 4096 + 256  # characters: PATH_MAX, and an entry below; renames of chains make paths of any length


class TooLong(Exception):
    """A path has more characters than the kernel takes, so that nobody can use it."""


class Directory:
    """A watched directory; only the first has no parent."""

    __slots__ = ("below", "name", "number", "parent")

    def __init__(self, number: int, name: str, parent: Directory | None) -> None:
        self.number = number
        self.name = name
        self.parent = parent
        self.below: dict[str, Directory] = {}


class Watched:
    """A tree of directories. A renamed one changes its place, so that no path of those below is stored."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._by_number: dict[int, Directory] = {}
        self.top: Directory | None = None

    def __len__(self) -> int:
        return len(self._by_number)

    def get(self, number: int) -> Directory | None:
        return self._by_number.get(number)

    def path_of(self, directory: Directory, name: str = "") -> str:
        """Return the path of a directory, or of an entry of it. Raises TooLong."""
        names = [name] if name else []
        length = len(self.path) + len(name)
        at: Directory | None = directory
        while at is not None and at is not self.top:
            names.append(at.name)
            length += len(at.name) + 1
            if length > MOST_PATH:
                raise TooLong
            at = at.parent
        if not names:
            return self.path
        names.append(self.path.rstrip("/"))
        return "/".join(reversed(names))

    def find(self, path: str) -> Directory | None:
        """Return the directory at a path from the first one; "" is the first itself."""
        at = self.top
        for name in path.split("/") if path else ():
            at = at.below.get(name) if at is not None else None
        return at

    def add(self, number: int, name: str, parent: Directory | None) -> Directory:
        """Add a directory, or move the one that has this number."""
        found = self._by_number.get(number)
        if found is None:
            found = self._by_number[number] = Directory(number, name, None)
            if parent is None:
                self.top = found
        if parent is not None:
            self.move(found, name, parent)
        return found

    def move(self, directory: Directory, name: str, parent: Directory) -> None:
        """Give a directory another name or parent."""
        at: Directory | None = parent
        while at is not None:
            if at is directory:  # from answers that are older than a rename
                return
            at = at.parent if directory.below else None  # a leaf is above nothing: the way up may be long
        if directory.parent is not None and directory.parent.below.get(directory.name) is directory:
            del directory.parent.below[directory.name]
        directory.name, directory.parent = name, parent
        parent.below[name] = directory

    def drop(self, directory: Directory) -> list[int]:
        """Forget a directory and all below it; return their numbers."""
        if directory.parent is not None and directory.parent.below.get(directory.name) is directory:
            del directory.parent.below[directory.name]
        numbers: list[int] = []
        waiting = [directory]
        while waiting:
            one = waiting.pop()
            waiting += one.below.values()
            if self._by_number.get(one.number) is one:
                del self._by_number[one.number]
                numbers.append(one.number)
        return numbers
