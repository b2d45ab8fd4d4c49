"""Selects an image's requirements, with hashes, from the workspace's pinned list, without a second resolution."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from images.contents import IMAGES, Image
from images.rootfs import ImageError

ROOT = Path(__file__).resolve().parent.parent
PINNED = ROOT / "requirements" / "dev.txt"
OUT = ROOT / "images" / "requirements"
# Of the images' Debian.
PYTHON = "3.11"
# Build backend of our packages, for the builder stage of a Dockerfile.
BUILDER = ("hatchling",)


def distribution_name(package: str) -> str:
    """Return the distribution name of one of our packages."""
    return "sandlot" if package == "sdk" else f"sandlot-{package}"


def graph(requirements: Iterable[str]) -> dict[str, set[str]]:
    """Return what these require, ours and others', each with what it requires itself, as installed here."""
    found: dict[str, set[str]] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        needs = found.setdefault(name, set())
        for extra in ("", *sorted(requirement.extras)):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for text in distribution(name).requires or []:
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    needs.add(canonicalize_name(needed.name))
                    waiting.append(needed)
    return found


def pinned_extras(name: str) -> list[str]:
    """Return the extras of one of our packages but those for a framework, which the list does not pin: users have it."""
    pinned, found = blocks(PINNED.read_text()), distribution(name)
    unpinned = {
        extra
        for extra in found.metadata.get_all("Provides-Extra") or []
        for needed in map(Requirement, found.requires or [])
        if needed.marker is not None and needed.marker.evaluate({"extra": extra})
        if not needed.name.startswith("sandlot") and canonicalize_name(needed.name) not in pinned
    }
    return [extra for extra in found.metadata.get_all("Provides-Extra") or [] if extra not in unpinned]


def closure(requirements: Iterable[str]) -> set[str]:
    """Return the third-party distributions that these require, as installed in this environment."""
    return {name for name in graph(requirements) if not name.startswith("sandlot")}


def blocks(text: str) -> dict[str, list[str]]:
    """Return the entries of a pinned list by name; a name has several if they differ by Python version."""
    entries: dict[str, list[str]] = {}
    for entry in re.split(r"(?m)^(?=[A-Za-z0-9])", text):
        match = re.match(r"([A-Za-z0-9._-]+)==", entry)
        if match:
            entries.setdefault(canonicalize_name(match[1]), []).append(entry)
    return entries


def _pinned(names: set[str]) -> dict[str, list[str]]:
    pinned = blocks(PINNED.read_text())
    unknown = sorted(names - set(pinned))
    if unknown:
        raise ImageError(f"{PINNED.relative_to(ROOT)} does not pin {', '.join(unknown)}; run `make lock`")
    return {name: pinned[name] for name in sorted(names)}


def select(names: set[str]) -> str:
    """Return the entries of these names in the workspace's list. Raises ImageError."""
    return "".join(entry.rstrip() + "\n" for entries in _pinned(names).values() for entry in entries)


def versions(names: Iterable[str]) -> dict[str, str]:
    """Return the pinned versions of these for the images' Python, by name. Raises ImageError."""
    python = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.0"}
    found: dict[str, str] = {}
    for name, entries in _pinned(set(names)).items():
        for entry in entries:
            requirement = Requirement(entry.splitlines()[0].rstrip(" \\"))
            if requirement.marker is None or requirement.marker.evaluate(python):
                (pin,) = requirement.specifier
                found[name] = pin.version
    return found


def wanted(image: Image) -> list[str]:
    """Return the requirements of an image: our packages, the last one with its extras."""
    extras = f"[{','.join(image.extras)}]" if image.extras else ""
    *others, last = map(distribution_name, image.packages)
    return [*others, last + extras]


def of_image(image: Image) -> str:
    """Return the pinned list of an image."""
    return select(closure(wanted(image)))


def generated() -> dict[Path, str]:
    """Return every list in the repository by its path."""
    files = {OUT / f"{image.name}.txt": of_image(image) for image in IMAGES if image.packages}
    files[OUT / "builder.txt"] = select(closure(BUILDER))
    return files
