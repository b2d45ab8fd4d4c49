"""Environments that need no network, and wheels for them of what is installed here: the files of each, as its RECORD lists."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import sys_tags


def installed(directory: Path, *words: str | Path) -> Path:
    """The Python of a new environment in a directory, with what these words of `uv pip install` name."""
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, directory / "installed"], check=True)
    python = directory / "installed" / "bin" / "python"
    install = [uv, "pip", "install", "--quiet", "--no-cache", "--no-index", "--python", python]
    # Elsewhere than in the tree: its settings for uv are not those of who installs the release.
    subprocess.run([*install, *words], check=True, cwd=directory)
    return python


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
