"""Packages the chart with a release's version, registry and image digests as its defaults."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from images.rootfs import run
from release.errors import ReleaseError


def helm() -> str:
    """Return Helm 4: $HELM, or that of PATH. Raises ReleaseError."""
    wanted = os.environ.get("HELM") or "helm"
    found = shutil.which(wanted)
    if found is None:
        raise ReleaseError(f"{wanted}: not found; install Helm 4, or set HELM to its path")
    said = run([found, "version", "--template", "{{.Version}}"])
    if not said.startswith("v4."):
        raise ReleaseError(
            f"{found} is Helm {said.strip()}, whose archives contain the time; install Helm 4, or set HELM to its path"
        )
    return found


def defaults(values: str, *, registry: str | None, digests: Mapping[str, str]) -> str:
    """Return values.yaml with other defaults; `digests` by the keys of `image.digests`. Raises ReleaseError."""
    before, section, after = values.partition("\nimage:\n")
    body, following, rest = after.partition("\n\n")
    head, inner, places = body.partition("\n  digests:\n")
    if registry is not None:
        head = _set(head, "registry", registry)
    for name, digest in digests.items():
        places = _set(places, name, digest)
    return f"{before}{section}{head}{inner}{places}{following}{rest}"


def _set(text: str, key: str, value: str) -> str:
    changed, count = re.subn(rf"(?m)^( +{key}: ).*$", lambda found: f'{found[1]}"{value}"', text)
    if count != 1:
        raise ReleaseError(f"values.yaml has {count} keys {key} below `image`, not 1; adapt release/chart.py")
    return changed


def package(
    chart: Path, out: Path, *, version: str, registry: str | None, digests: Mapping[str, str], epoch: int
) -> Path:
    """Package a copy of the chart, which it changes. Raises ReleaseError."""
    values = chart / "values.yaml"
    values.write_text(defaults(values.read_text(), registry=registry, digests=digests))
    os.utime(values, (epoch, epoch))
    out.mkdir(parents=True)
    words = ["package", chart, "--version", version, "--app-version", version, "--destination", out]
    run([helm(), *words])
    return out / f"{chart.name}-{version}.tgz"
