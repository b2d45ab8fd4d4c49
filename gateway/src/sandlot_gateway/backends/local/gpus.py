"""Assigns the machine's GPUs: each to one instance at a time, from its start until all of it is removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template

from ...core.backend import BackendError, Unavailable
from .entries import Entry
from .gpu_devices import CONTROL, Gpu, control_devices, find_gpus
from .gpu_driver import Driver, find_driver
from .gpu_models import is_type

_UNSUPPORTED = "UNSUPPORTED"
_KEEP = 1.0  # seconds: creates that wait for a GPU would list the machine's libraries all the time


@dataclass(frozen=True, slots=True)
class Found:
    """The GPUs that fit a template, in use or not, and what a sandbox needs to use them."""

    gpus: list[Gpu]
    control: list[str]  # device files of all GPUs
    driver: Driver


class Gpus:
    def __init__(
        self,
        entries: Mapping[InstanceId, Entry],
        *,
        left: Mapping[InstanceId, list[int]],
        root: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`root`: of the machine. In use are the GPUs of `entries` and those `left`, whose removal has failed."""
        self._entries = entries
        self._left = left
        self._root = root.absolute()
        self._clock = clock
        self._driver: Driver | None = None
        self._driver_until = 0.0

    def find(self, template: Template) -> Found:
        """Return the GPUs for a template that wants some. Blocks on the disk.

        They are looked up while the gateway runs, the driver's files at most once a second: it may be loaded later.
        Raises BackendError if the machine can never start it.
        """
        gpus = find_gpus(self._root)
        if not gpus:
            text = "this machine has no NVIDIA GPU: leave it out, or use a machine with GPUs"
            raise BackendError(text, error_type=_UNSUPPORTED, field="gpu_count")
        fitting = [gpu for gpu in gpus if template.gpu_type is None or is_type(gpu.model, template.gpu_type)]
        if not fitting:
            models = ", ".join(
                sorted({gpu.model or "GPUs of which the driver tells no model" for gpu in gpus})
            )
            text = f"this machine has {models}, not {template.gpu_type!r}: name what it has, or leave it out"
            raise BackendError(text, error_type=_UNSUPPORTED, field="gpu_type")
        if template.gpu_count > len(fitting):
            of_type = f" of type {template.gpu_type!r}" if template.gpu_type is not None else ""
            text = f"this machine has {len(fitting)} of {template.gpu_count} GPUs{of_type}: ask for at most that many"
            raise BackendError(text, error_type=_UNSUPPORTED, field="gpu_count")
        control = control_devices(self._root)
        if lacking := [name for name in CONTROL if name not in control]:
            text = f"this machine lacks /dev/{lacking[0]}: load the driver's modules, say with nvidia-modprobe -u -c 0"
            raise BackendError(text, error_type=_UNSUPPORTED, field="gpu_count")
        driver = self._driver
        if driver is None or self._clock() >= self._driver_until:
            driver = self._driver = find_driver(self._root)
            self._driver_until = self._clock() + _KEEP
        if driver is None:
            text = (
                "this machine has no libcuda.so.1 with libnvidia-ml.so.1 beside it where the dynamic linker looks: "
                "install the driver's libraries"
            )
            raise BackendError(text, error_type=_UNSUPPORTED, field="gpu_count")
        return Found(fitting, control, driver)

    def choose(self, count: int, found: Found) -> list[int]:
        """Return the minor numbers of free ones. The caller enters them in a record at once. Raises Unavailable."""
        left = {minor for minors in self._left.values() for minor in minors}
        used = left.union(*(entry.record.gpus for entry in self._entries.values()))
        free = [gpu.minor for gpu in found.gpus if gpu.minor not in used]
        if len(free) < count:
            stuck = ", ".join(f"/dev/{gpu.device}" for gpu in found.gpus if gpu.minor in left)
            also = f"; {stuck} had a sandbox that could not be removed, the log says why" if stuck else ""
            raise Unavailable(
                f"{len(free)} of this machine's {len(found.gpus)} such GPUs are free, and the sandbox needs {count}"
                f"{also}: delete a sandbox that has one",
                only_kind=True,
            )
        return free[:count]

    def document(self, minors: list[int], found: Found) -> dict[str, Any]:
        """Return the config's `root.gpus`, see "Start" in docs/sidecar-contract.md."""
        names = [gpu.device for gpu in found.gpus if gpu.minor in minors]
        return {
            "count": len(minors),
            "devices": {name: str(self._root / "dev" / name) for name in (*names, *found.control)},
            "files": found.driver.files,
            "links": found.driver.links,
        }
