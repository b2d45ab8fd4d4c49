"""Records which images the node has, which slots use them, and decides which ones go when there are too many.

Plain data, without a clock or I/O: every call takes the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from .elapsed import is_over
from .images import ImageId, SlotId

MOST_NAMES = 100  # of an image; any number of names can mean one image
LOOKS = (
    3  # in a row without a slot's pod, before its uses are dropped: one list of containerd's may lack a pod
)


@dataclass
class Entry:
    """An image of the node. `names`: the latest last. `uses`: since when each slot uses it."""

    parts: Mapping[str, int]
    last_used: float
    names: list[str] = field(default_factory=list[str])
    uses: dict[SlotId, float] = field(default_factory=dict[SlotId, float])


class Ledger:
    """The images of a node within a budget of bytes.

    Nothing that a slot uses is ever idle, nor what was asked for within the last `hold` seconds: its asker is about to
    say which slot uses it.
    """

    def __init__(self, *, budget: int, hold: float) -> None:
        self.budget = budget
        self.hold = hold
        self.entries: dict[ImageId, Entry] = {}
        self._unseen: Counter[SlotId] = Counter()  # looks in a row

    def add(self, image_id: ImageId, parts: Mapping[str, int], *, name: str, now: float) -> None:
        """Record an image that was asked for by this name."""
        entry = self.entries.get(image_id)
        if entry is None:
            entry = self.entries[image_id] = Entry(parts=dict(parts), last_used=now)
        _name(entry, name)
        entry.last_used = now

    def touch(self, image_id: ImageId, *, now: float, name: str | None = None) -> bool:
        """Record that an image was asked for again, by this name; False: the node does not have it."""
        entry = self.entries.get(image_id)
        if entry is None:
            return False
        if name is not None:
            _name(entry, name)
        entry.last_used = now
        return True

    def use(self, image_id: ImageId, slot: SlotId, *, now: float, since: float | None = None) -> bool:
        """Record a slot that uses the image since then, or since now; False: the node does not have it."""
        if not self.touch(image_id, now=now):
            return False
        self.entries[image_id].uses[slot] = now if since is None else since
        return True

    def unuse(self, image_id: ImageId, slot: SlotId, *, now: float, until: float | None = None) -> None:
        """Forget a slot's use, unless it began after `until`; one that is not recorded changes nothing."""
        entry = self.entries.get(image_id)
        since = entry.uses.get(slot) if entry is not None else None
        if entry is None or since is None or (until is not None and since > until):
            return
        del entry.uses[slot]
        entry.last_used = now

    def drop_dead(self, living: Collection[str], *, now: float, grace: float) -> list[SlotId]:
        """Forget uses older than `grace` of slots that LOOKS calls in a row have not seen, and return those slots.

        One that began as far ahead is older, too: the clock was set back since.
        """
        slots = {slot for entry in self.entries.values() for slot in entry.uses}
        self._unseen = Counter({slot: self._unseen[slot] + 1 for slot in slots if slot not in living})
        dropped: list[SlotId] = []
        for entry in self.entries.values():
            for slot, since in list(entry.uses.items()):
                if self._unseen[slot] >= LOOKS and not since - grace < now < since + grace:
                    del entry.uses[slot]
                    dropped.append(slot)
        return dropped

    def remove(self, image_id: ImageId) -> Entry | None:
        """Forget an image, and return what was recorded of it."""
        return self.entries.pop(image_id, None)

    def is_idle(self, image_id: ImageId, *, now: float) -> bool:
        """Return whether the image may be released."""
        entry = self.entries.get(image_id)
        return entry is not None and not entry.uses and is_over(entry.last_used, self.hold, now=now)

    def idle(self, *, now: float) -> list[ImageId]:
        """Return the images that may be released, the least recently used first."""
        found = [image_id for image_id in self.entries if self.is_idle(image_id, now=now)]
        return sorted(found, key=lambda image_id: (self.entries[image_id].last_used, image_id))

    def used(self, *, without: Collection[ImageId] = ()) -> int:
        """Return the bytes of all images but these; a part that several share counts once."""
        parts: dict[str, int] = {}
        for image_id, entry in self.entries.items():
            if image_id not in without:
                parts.update(entry.parts)
        return sum(parts.values())

    def victims(self, *, now: float, keep: ImageId | None = None) -> list[ImageId]:
        """Return which images but `keep` to release so that the rest is within the budget, or as near as can be."""
        chosen: list[ImageId] = []
        for image_id in self.idle(now=now):
            if self.used(without=chosen) <= self.budget:
                break
            if image_id != keep:
                chosen.append(image_id)
        return chosen


def _name(entry: Entry, name: str) -> None:
    """Add a name as the latest one, and drop the oldest if there are too many."""
    if name in entry.names:
        entry.names.remove(name)
    entry.names.append(name)
    del entry.names[:-MOST_NAMES]
