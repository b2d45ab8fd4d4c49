"""Builds a release a second time, elsewhere and without caches, and compares the digests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from images.build import CACHE
from images.requirements import ROOT
from images.rootfs import run
from release import sums
from release.errors import ReleaseError


def check(version: str, *, out: Path, registry: str | None) -> None:
    """Compare a release with a second build of the commit. Raises ReleaseError or ImageError."""
    first = sums.read(out)
    with tempfile.TemporaryDirectory(prefix="sandlot-release-") as name:
        clone, cache, made = (Path(name) / part for part in ("clone", "cache", "made"))
        run(["git", "clone", "--quiet", ROOT, clone])
        (clone / ".venv").symlink_to(ROOT / ".venv")
        # The link is no directory, as .gitignore has it.
        (clone / ".git" / "info" / "exclude").write_text(".venv\n")
        command = [sys.executable, "-m", "release", "build", version, "--out", str(made)]
        command += ["--registry", registry] if registry else []
        # What must leave no trace: the time zone, the language and the mask of modes.
        environment = {"SANDLOT_CLUSTER_CACHE": str(cache), "TZ": "Asia/Kathmandu", "LC_ALL": "C"}
        done = subprocess.run(
            command,
            cwd=clone,
            env={**os.environ, **environment},
            umask=0o077,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode != 0:
            raise ReleaseError(
                f"the second build failed with exit code {done.returncode}; its output is above"
            )
        second = sums.read(made)
        debian = newer(debian_packages(out), debian_packages(made))
    differing = sorted(each for each in {*first, *second} if first.get(each) != second.get(each))
    if debian:
        raise ReleaseError(
            f"the images' cache has other packages than Debian has today ({', '.join(debian)}); "
            f"remove {CACHE}/debian-*.layer and build the release again"
        )
    if differing:
        raise ReleaseError(
            f"a second build differs in {', '.join(differing)}; the parts that differ contain a time, "
            "a path or an order of this machine"
        )
    print(f"{len(first)} files of the second build are the same")


def debian_packages(release: Path) -> dict[str, str]:
    """Return the versions of the Debian packages in a release's images, from its bill of materials."""
    components = json.loads((release / sums.BILL).read_text())["components"]
    return {each["name"]: each["version"] for each in components if each["purl"].startswith("pkg:deb/")}


def newer(first: dict[str, str], second: dict[str, str]) -> list[str]:
    """Return what differs, each as `name 1.0 -> 1.1`."""
    names = sorted(name for name in {*first, *second} if first.get(name) != second.get(name))
    return [f"{name} {first.get(name, '(none)')} -> {second.get(name, '(none)')}" for name in names]
