"""Roots of small images, unpacked: some of this machine's programs with their libraries, and a file with a name."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

PROGRAMS = ("sh", "cat", "ls", "id", "touch", "sleep", "readlink", "stat")


def install(root: Path, *programs: str) -> None:
    """Copy programs and the libraries they need."""
    files = {shutil.which(program) for program in programs}
    for program in list(files):
        listing = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
        files |= {part for part in listing.split() if part.startswith("/")}
    for file in files:
        assert file is not None
        target = root / file.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def make_root(directory: Path, name: str) -> Path:
    """An image whose `/etc/which` holds its name, with a user `app` and a home of that user's."""
    root = directory / name / "rootfs"
    for made in ("etc", "bin", "usr/bin", "lib64", "home/app", "var"):
        (root / made).mkdir(parents=True)
    for path in (directory / name, root):
        path.chmod(0o755)
    install(root, *PROGRAMS)
    if not (root / "bin/sh").exists():
        shutil.copy("/bin/sh", root / "bin/sh")
    (root / "etc/which").write_text(f"{name}\n")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\napp:x:1234:1234::/home/app:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\napp:x:1234:\n")
    return root
