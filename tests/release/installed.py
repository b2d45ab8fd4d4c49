"""Wheels of what is installed here, for an installation without a network: the files of each, as its RECORD lists them."""

from __future__ import annotations

import importlib.metadata
import zipfile
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import sys_tags


def wheels(requirements: Iterable[str], out: Path) -> None:
    """Write wheels of these packages and of all that they require into a directory; ours are left out."""
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [Requirement(text) for text in requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        key = wanted.name.lower(), frozenset(wanted.extras)
        if key in seen:
            continue
        seen.add(key)
        distribution = importlib.metadata.distribution(wanted.name)
        if not wanted.name.startswith("sandlot"):
            found[distribution.name] = distribution
        for text in distribution.requires or []:
            each = Requirement(text)
            environments = [{"extra": extra} for extra in (*wanted.extras, "")]
            if each.marker is None or any(map(each.marker.evaluate, environments)):
                waiting.append(each)
    for distribution in found.values():
        _wheel(distribution, out)


def _wheel(distribution: importlib.metadata.Distribution, out: Path) -> None:
    lines = (distribution.read_text("WHEEL") or "").splitlines()
    tags = {line.removeprefix("Tag: ") for line in lines}
    tag = next(str(each) for each in sys_tags() if str(each) in tags)
    # Scripts and compiled files are what the installer makes of the rest.
    files = [each for each in distribution.files or [] if ".." not in each.parts and each.suffix != ".pyc"]
    records = [each for each in files if each.name == "RECORD"]
    name = distribution.name.replace("-", "_")
    with zipfile.ZipFile(out / f"{name}-{distribution.version}-{tag}.whl", "w") as wheel:
        for each in files:
            if each not in records:
                wheel.write(each.locate(), each.as_posix())
        (record,) = records
        rows = (f"{each.as_posix()},,\n" for each in files)
        wheel.writestr(record.as_posix(), "".join(rows))
