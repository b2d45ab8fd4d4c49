"""The extended attributes of an entry that belong to the sandbox, and what the kernel marks of the layer itself."""

from __future__ import annotations

import os
import stat

from .errors import LayerError
from .walk import MAX_ENTRIES, OPAQUE, Walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .selection import Selection
    from .walk import Entry

CAPABILITY = "security.capability"
# These attributes refer to other files of this layer and to inodes of its image.
ELSEWHERE = ("trusted.overlay.redirect", "trusted.overlay.metacopy")
PAX_XATTR = "SCHILY.xattr."


def measure(
    tops: Sequence[int],
    selection: Selection,
    *,
    max_entries: int = MAX_ENTRIES,
    check: Callable[[Entry], None] | None = None,
) -> tuple[int, int]:
    """Return the number of entries, and the bytes of regular files and attributes.

    `check` is called with each entry. Raises LayerError, and what `check` raises.
    """
    count = size = 0
    for entry in Walk(tops, selection, max_entries=max_entries):
        count += 1
        if check is not None:
            check(entry)
        if stat.S_ISREG(entry.info.st_mode):
            size += entry.info.st_size
        if entry.fd >= 0 and not selection.is_above(entry.path):
            size += attribute_bytes(attributes(entry))
    return count, size


def attributes(entry: Entry) -> dict[str, bytes]:
    """Return the attributes of an open entry that belong to the sandbox, and the mark of what it hides.

    Raises LayerError if one refers to a place outside of the layer.
    """
    found: dict[str, bytes] = {}
    for name in _names(entry.fd, path=entry.path):
        if is_kept(name):
            try:
                found[name] = os.getxattr(entry.fd, name)
            except OSError:
                continue
    if entry.hides:
        found[OPAQUE] = b"y"
    return found


def _names(fd: int, *, path: str) -> set[str]:
    """Return the names of the attributes. Raises LayerError if one refers to a place outside of the layer."""
    try:
        names = set(os.listxattr(fd))
    except OSError:
        return set()
    if names.intersection(ELSEWHERE):
        raise LayerError(
            "unreadable", f"/{path} was renamed so that only this kernel can read it: copy it instead"
        )
    return names


def is_kept(name: str) -> bool:
    """Return whether an extended attribute belongs to the sandbox, not to the overlay."""
    return (name.startswith("user.") and not name.startswith("user.overlay.")) or name == CAPABILITY


def attribute_bytes(found: Mapping[str, bytes]) -> int:
    """Return how many bytes these attributes occupy in an archive, with their names."""
    return sum(len(PAX_XATTR) + len(key(name)) + len(value) for name, value in found.items())


def key(name: str) -> str:
    """Return an attribute's key in an archive, escaped: tarfile writes no key of other bytes than UTF-8, and `=` ends one."""
    escaped = name.replace("%", "%25").replace("=", "%3D")
    return "".join(f"%{ord(one) - 0xDC00:02X}" if "\udc80" <= one <= "\udcff" else one for one in escaped)
