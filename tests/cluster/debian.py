"""Debian packages: those that the machine itself needs, installed where that can be done, and others as files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster import versions
from tests.cluster.shell import ClusterError, CommandFailed, run, say


def missing_packages(wanted: Mapping[str, str] = versions.HOST_PACKAGES) -> list[str]:
    """The Debian packages whose programs or files this machine lacks."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [
        package
        for program, package in wanted.items()
        if (
            not Path(program).exists()
            if program.startswith("/")
            else shutil.which(program, path=path) is None
        )
    ]


def ensure_packages(programs: Mapping[str, str] = versions.HOST_PACKAGES) -> None:
    """Installs what is missing, as root on Debian and its kin; says what to install everywhere else."""
    packages = missing_packages(programs)
    if not packages:
        return
    wanted = " ".join(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(f"this machine lacks {wanted}: install them (on Debian: apt-get install {wanted})")
    say(f"installing {wanted}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "-qq"], env=env)
    run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], env=env)


def download(packages: Sequence[str], *, directory: Path) -> list[Path]:
    """The files of packages in the order of their names; fetches those that the directory does not have."""
    directory.mkdir(parents=True, exist_ok=True)
    missing = [name for name in packages if not any(directory.glob(f"{name}_*.deb"))]
    if missing:
        say(f"downloading {' '.join(missing)}")
        # As this user: apt's own cannot write here.
        command = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *missing]
        try:
            run(command, cwd=directory)
        except CommandFailed:  # a machine that nobody has asked for packages yet
            run(["apt-get", "update", "-qq"])
            run(command, cwd=directory)
    return [next(directory.glob(f"{name}_*.deb")) for name in packages]
