"""Writes the bytecode of modules into one file for Python's zipimport: `python3 images/bundle.py ROOT OUT NAME...`.

Under gVisor each imported module keeps four descriptors open, for its source and its bytecode, which all processes of
the sandbox share; the kubelet reads those of each process every 10 s (docs/adr/0010).
It imports only the standard library, since a Dockerfile runs it, too.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

PLACES = ("opt/sandlot", "usr/lib/python3.11")  # searched for modules in this order
MARK = ".cpython-311.opt-2.pyc"
_TIME = (2026, 1, 1, 0, 0, 0)  # of every member, for reproducible archives


def modules(root: Path, name: str) -> Iterator[tuple[str, Path]]:
    """Yield archive member and bytecode of a module, or of a package without its tests. Raises FileNotFoundError."""
    for place in PLACES:
        package = root / place / name
        if package.is_dir():
            for found in sorted(package.rglob(f"*{MARK}")):
                folder = found.parent.parent.relative_to(root / place)
                if not {"test", "tests"} & set(folder.parts):
                    yield str(folder / (found.name.removesuffix(MARK) + ".pyc")), found
            return
        single = root / place / "__pycache__" / f"{name}{MARK}"
        if single.exists():
            yield f"{name}.pyc", single
            return
    raise FileNotFoundError(f"{name}: no bytecode of it in {' or '.join(PLACES)} below {root}")


def write(root: Path, out: Path, names: Sequence[str]) -> None:
    """Write the archive uncompressed, since a sandbox's start waits for the imports."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(names):
            for member, path in modules(root, name):
                info = zipfile.ZipInfo(member, _TIME)
                info.external_attr = 0o644 << 16
                archive.writestr(info, path.read_bytes())


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
