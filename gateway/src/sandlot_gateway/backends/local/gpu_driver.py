"""Finds the files of the machine's NVIDIA driver that programs in a sandbox load: their versions are the kernel's."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .root_links import resolve_below

# The libraries of the driver for compute, management and video, as NVIDIA's container toolkit names them. CUDA's own
# (libcudart, libcublas, ...) belong to the image.
_LIBRARY = re.compile(
    r"(libcuda|libcudadebugger|libnvcuvid|libnvidia-(allocator|cfg|encode|gpucomp|ml|nvvm|nvvm70|opencl|opticalflow"
    r"|pkcs11|pkcs11-openssl3|ptxjitcompiler|sandboxutils|tileiras))\.so(\.[0-9.]+)?"
)
_PROGRAMS = ("nvidia-smi", "nvidia-debugdump")
_MAIN = "libcuda.so.1"  # the others are those beside it, so that all are of one version
_BESIDE = "libnvidia-ml.so.1"  # CUDA's compatibility packages, of another version than the kernel's, lack it
_OWN = "usr/local/nvidia"  # where machines whose image lacks the driver mount it
_PROGRAM_DIRS = (f"{_OWN}/bin", "usr/bin", "usr/local/bin")
_MAX_INCLUDES = 8  # of ld.so.conf in each other


@dataclass(frozen=True, slots=True)
class Driver:
    """Paths below the driver's directory in a sandbox: `bin/` and `lib/`."""

    files: dict[str, str] = field(default_factory=dict[str, str])  # path -> file of the machine
    links: dict[str, str] = field(default_factory=dict[str, str])  # path -> name beside it


def find_driver(root: Path) -> Driver | None:
    """Return the driver of the machine whose root this is, None if it has no `libcuda.so.1`. Blocks on the disk."""
    libraries = next((path for path in _library_dirs(root) if _has_driver(root, path)), None)
    if libraries is None:
        return None
    driver = Driver()
    for path in sorted(resolve_below(root, libraries).iterdir()):
        if _LIBRARY.fullmatch(path.name):
            _add(driver, root, "lib", path)
    for name in _PROGRAMS:
        paths = (root / each / name for each in _PROGRAM_DIRS)
        found = next((path for path in paths if resolve_below(root, path).is_file()), None)
        if found is not None:
            _add(driver, root, "bin", found)
    return driver


def _add(driver: Driver, root: Path, directory: str, path: Path) -> None:
    file = resolve_below(root, path)
    if not file.is_file():
        return
    driver.files[f"{directory}/{file.name}"] = str(file)
    if file.name != path.name:
        driver.links[f"{directory}/{path.name}"] = file.name


def _has_driver(root: Path, directory: Path) -> bool:
    """Return whether it has the driver for this machine's programs: others may be there for those of 32 bits."""
    try:
        if not resolve_below(root, directory / _BESIDE).is_file():
            return False
        with open(resolve_below(root, directory / _MAIN), "rb") as file:
            return file.read(5) == b"\x7fELF\x02"
    except OSError:
        return False


def _library_dirs(root: Path) -> Iterator[Path]:
    usual = ("lib64", "usr/lib64", f"usr/lib/{platform.machine()}-linux-gnu", "usr/lib", "lib")
    named = _named_dirs(root, "etc/ld.so.conf", depth=0)
    for path in (f"{_OWN}/lib64", f"{_OWN}/lib", *named, *usual):
        yield root / path


def _named_dirs(root: Path, pattern: str, *, depth: int) -> Iterator[str]:
    """Yield the directories of the dynamic linker's configuration, relative to the root."""
    if depth > _MAX_INCLUDES:
        return
    for path in sorted(root.glob(pattern)):
        try:
            lines = resolve_below(root, path).read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            word, _, rest = line.split("#")[0].strip().partition(" ")
            if word == "include":
                named = rest.strip()
                inner = named if named.startswith("/") else os.path.join("/", os.path.dirname(pattern), named)
                yield from _named_dirs(root, inner.lstrip("/"), depth=depth + 1)
            elif word.startswith("/"):
                yield word.lstrip("/")
