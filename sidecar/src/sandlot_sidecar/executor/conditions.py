"""The conditions that a root and its init are built for."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .image import Image


class Conditions:
    """What a root and its init depend on."""

    def __init__(self, network: str, hostname: str, *, disk: int | None, shm: int, image: Image) -> None:
        self.network = network
        self.hostname = hostname
        self.disk = disk
        self.shm = shm
        self.image = image

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Conditions) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))
