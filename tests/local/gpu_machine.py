"""A machine with GPUs for tests: a directory with real device files of harmless devices, and files of a driver."""

from __future__ import annotations

import os
import platform
import stat
from pathlib import Path

H100 = "NVIDIA H100 80GB HBM3"
NULL, ZERO, FULL = (os.makedev(1, minor) for minor in (3, 5, 7))
ELF = b"\x7fELF\x02" + bytes(59)
VERSION = "580.1"


def add_device(root: Path, name: str, device: int) -> None:
    (root / "dev").mkdir(parents=True, exist_ok=True)
    os.mknod(root / "dev" / name, stat.S_IFCHR | 0o666, device)
    os.chmod(root / "dev" / name, 0o666)


def add_gpu(root: Path, minor: int, model: str = H100, *, device: int = ZERO) -> None:
    add_device(root, f"nvidia{minor}", device)
    about = root / f"proc/driver/nvidia/gpus/0000:{minor:02x}:00.0"
    about.mkdir(parents=True)
    (about / "information").write_text(f"Model: \t\t {model}\nDevice Minor: \t {minor}\n")


def add_driver(root: Path, *, directory: str | None = None) -> Path:
    """Add libraries with their links, and a program that says that it ran."""
    libraries = root / (directory or f"usr/lib/{platform.machine()}-linux-gnu")
    libraries.mkdir(parents=True)
    for name in ("libcuda", "libnvidia-ml"):
        (libraries / f"{name}.so.{VERSION}").write_bytes(ELF)
        (libraries / f"{name}.so.1").symlink_to(f"{name}.so.{VERSION}")
    (libraries / "libc.so.6").write_bytes(ELF)
    programs = root / "usr/bin"
    programs.mkdir(parents=True, exist_ok=True)
    (programs / "nvidia-smi").write_text("#!/bin/sh\necho smi: $CUDA_VISIBLE_DEVICES\n")
    (programs / "nvidia-smi").chmod(0o755)
    return libraries


def add_control(root: Path) -> None:
    for name in ("nvidiactl", "nvidia-uvm"):
        add_device(root, name, NULL)


def gpu_machine(root: Path, *models: str) -> Path:
    """Make the root of a machine with these GPUs."""
    add_control(root)
    add_driver(root)
    for minor, model in enumerate(models):
        add_gpu(root, minor, model, device=(ZERO, FULL)[minor % 2])
    return root
