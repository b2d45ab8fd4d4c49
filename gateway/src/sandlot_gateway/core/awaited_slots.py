"""Which slots wait for an image: creates gave them back while their nodes prepare it. Plain data, without I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from sandlot_contract.ids import InstanceId

_MOST = 4  # images that a slot waits for: while one create's sandbox uses it, its node prepares the next ones


class AwaitedSlots:
    """Each slot with the images that its node prepares for creates which gave it back and will come back.

    Without it a freed slot would go from one waiting create to the next, and its node would begin to pull all their
    images.
    """

    def __init__(self) -> None:
        self._images: dict[InstanceId, Counter[str]] = {}

    def __iter__(self) -> Iterator[InstanceId]:
        return iter(self._images)

    def __contains__(self, instance_id: object) -> bool:
        return instance_id in self._images

    def add(self, instance_id: InstanceId, image: str) -> None:
        """Note a create that has given the slot back."""
        self._images.setdefault(instance_id, Counter())[image] += 1

    def remove(self, instance_id: InstanceId, image: str) -> None:
        """Note that a create of `add` has come back, or has ended."""
        images = self._images[instance_id]
        images[image] -= 1
        if not images[image]:
            del images[image]
        if not images:
            del self._images[instance_id]

    def admits(self, instance_id: InstanceId, image: str) -> bool:
        """Return whether the slot may be tried by a create of an image that its node lacks."""
        images = self._images.get(instance_id, ())
        return len(images) < _MOST and image not in images

    def not_for(self, image: str) -> Collection[InstanceId]:
        """Return the slots that creates of this image do not get while their nodes lack it."""
        return {instance_id for instance_id in self._images if not self.admits(instance_id, image)}
