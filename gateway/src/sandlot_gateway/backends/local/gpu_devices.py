"""Finds the machine's NVIDIA GPUs and their device files, without any library of the driver."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

_GPU = re.compile(r"nvidia(\d+)")
# What CUDA opens beside the GPUs' own files. Without the first two, no CUDA program starts.
CONTROL = ("nvidiactl", "nvidia-uvm")
_MORE_CONTROL = ("nvidia-uvm-tools", "nvidia-modeset")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. The driver knows it by its minor number, so its file keeps its name in a sandbox."""

    minor: int
    model: str  # such as "NVIDIA H100 80GB HBM3"; "" if the driver does not say it

    @property
    def device(self) -> str:
        """Its name below /dev."""
        return f"nvidia{self.minor}"


def find_gpus(root: Path) -> list[Gpu]:
    """Return the GPUs of the machine whose root this is, by their minor numbers."""
    models = _models(root / "proc/driver/nvidia/gpus")
    return [Gpu(minor, models.get(minor, "")) for minor in sorted(_minors(root / "dev"))]


def control_devices(root: Path) -> list[str]:
    """Return the names below /dev of the files that all GPUs' programs use."""
    return [name for name in (*CONTROL, *_MORE_CONTROL) if _is_device(root / "dev" / name)]


def _minors(directory: Path) -> list[int]:
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    found = [match for name in names if (match := _GPU.fullmatch(name)) and _is_device(directory / name)]
    return [int(match[1]) for match in found]


def _is_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(os.lstat(path).st_mode)
    except OSError:
        return False


def _models(directory: Path) -> dict[int, str]:
    """Return the models by minor number; of those that the driver describes."""
    models: dict[int, str] = {}
    for path in directory.glob("*/information"):
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        said = {
            name.strip(): value.strip()
            for name, _, value in (line.partition(":") for line in text.splitlines())
        }
        if said.get("Device Minor", "").isdigit():
            models[int(said["Device Minor"])] = said.get("Model", "")
    return models
