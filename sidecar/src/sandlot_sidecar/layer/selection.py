"""Selects the parts of a layer that a checkpoint takes: some paths, without the entries of some names."""

from __future__ import annotations

import fnmatch
import stat

# A PAX record of a directory above a selected path: the restored one is the image's own, or new with default rights.
ABOVE = "SANDLOT.above"


class Selection:
    """Takes what is at or below `paths` (relative to the root; none means everything), but no name like `without`.

    A selected path that is a link, or has one above it, selects nothing: else code in the sandbox could choose which
    files of the other sandbox are replaced.
    """

    def __init__(self, *, paths: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> None:
        self._paths = frozenset(paths)
        self._above = frozenset(above for path in paths for above in _directories_above(path)) - self._paths
        self._without = without

    @property
    def is_part(self) -> bool:
        """Whether it takes less than everything."""
        return bool(self._paths or self._without)

    def takes(self, path: str, mode: int) -> bool:
        """Return whether the entry belongs to the archive; a directory that does not is not entered."""
        name = path.rpartition("/")[2]
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self._without):
            return False
        if self.is_above(path):
            return stat.S_ISDIR(mode)
        if path in self._paths:
            return not stat.S_ISLNK(mode)
        return not self._paths or any(above in self._paths for above in _directories_above(path))

    def is_above(self, path: str) -> bool:
        """Return whether it is only on the way to a selected path."""
        return path in self._above and not any(above in self._paths for above in _directories_above(path))


EVERYTHING = Selection()


def _directories_above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]
