"""The phase in which an image warm-up prepares the profile's images, as a user does before a run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from sandlot import AsyncClient, AsyncImageWarmups
from sandlot.models import WarmupInfo

from loadtests.load.schedule import Popularity


@dataclass(frozen=True, slots=True)
class Progress:
    """What the warm-up told `at` seconds after its creation: images that are ready, and its estimate in seconds."""

    at: float
    ready: int
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class Warmed:
    """The end of a warm-up, `seconds` after its creation, and all that it told before."""

    seconds: float
    result: WarmupInfo
    told: Sequence[Progress]

    @property
    def estimate(self) -> float | None:
        """Return the estimate at half of the images ÷ the time that it then took; None if none was told."""
        half = [one for one in self.told if one.seconds_left and 2 * one.ready >= self.result.images]
        return half[0].seconds_left / (self.seconds - half[0].at) if half and half[0].seconds_left else None


async def warm_up(images: Sequence[str], *, zipf: float, timeout: float, client: AsyncClient) -> Warmed:
    """Have all images prepared, the popular ones with more weight. Raises WaitTimeout after `timeout` seconds."""
    warmups = AsyncImageWarmups(client=client)
    begun, told = time.monotonic(), list[Progress]()

    def heard(now: WarmupInfo) -> None:
        told.append(Progress(time.monotonic() - begun, now.ready, now.seconds_left))

    weights = Popularity(len(images), zipf=zipf).weights()
    made = await warmups.create(dict(zip(images, weights, strict=True)))
    result = await warmups.wait(made.id, timeout=timeout, progress=heard)
    return Warmed(time.monotonic() - begun, result, told)
