"""Collects the figures of the machine and of its instances."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import Any

from sandlot_contract.ids import InstanceId

from .cgroups import Cgroups
from .machine import machine_stats

_KEPT = 1.0  # seconds


class Stats:
    """The figures, read again only when those of the last call are older than a second."""

    def __init__(
        self,
        instances: Collection[InstanceId],
        *,
        cgroups: Callable[[], Cgroups],
        max_instances: int | None,
    ) -> None:
        self._instances = instances
        self._cgroups = cgroups
        self._max_instances = max_instances
        self._read_at = float("-inf")
        self._figures: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """Return the machine's figures and each instance's memory (bytes), cpu (seconds) and pids."""
        if time.monotonic() - self._read_at > _KEPT:
            cgroups = self._cgroups()
            usage = {instance_id: asdict(cgroups.usage(instance_id)) for instance_id in self._instances}
            self._read_at = time.monotonic()
            self._figures = {
                **machine_stats(),
                "instances": len(self._instances),
                "max_instances": self._max_instances,
                "cgroup": cgroups.version,
                "notes": list(cgroups.notes),
                "usage": usage,
            }
        return self._figures
