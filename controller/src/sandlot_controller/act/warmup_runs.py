"""Warm-ups that are carried out, each told from a deleted one that had its name."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sandlot_contract.warmups import Pace
from sandlot_kube.warmups import ImageWarmup


@dataclass(slots=True)
class WarmupRun:
    """A warm-up. `standing`: it is done, and nodes that join get their part of its images."""

    resource: ImageWarmup
    pace: Pace
    weights: Counter[str]
    standing: bool
    earlier: frozenset[str]  # uids of deleted warm-ups of its name, whose last events may come late

    def is_of(self, warmup: ImageWarmup) -> bool:
        """Return whether this resource is the warm-up, and not another of its name."""
        return self.resource.metadata.uid == warmup.metadata.uid

    def succeeds(self, warmup: ImageWarmup) -> bool:
        """Return whether this resource is a deleted one that had the warm-up's name."""
        return warmup.metadata.uid in self.earlier


def begin(warmup: ImageWarmup, *, standing: bool, now: float, after: WarmupRun | None) -> WarmupRun:
    """Return a new run. `after`: the one of the same name until now."""
    weights: Counter[str] = Counter()
    for image in warmup.spec.images:
        weights[image.name] += image.weight
    earlier = frozenset() if after is None else after.earlier | {after.resource.metadata.uid}
    return WarmupRun(warmup, Pace(now), weights, standing, earlier)
