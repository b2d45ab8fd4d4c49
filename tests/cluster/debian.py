"""The Debian packages that the machine itself needs, installed where that can be done."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.cluster import versions
from tests.cluster.shell import ClusterError, run, say


def missing_packages() -> list[str]:
    """The Debian packages whose programs this machine lacks."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [
        package
        for program, package in versions.HOST_PACKAGES.items()
        if (
            not Path(program).exists()
            if program.startswith("/")
            else shutil.which(program, path=path) is None
        )
    ]


def ensure_packages() -> None:
    """Installs what is missing, as root on Debian and its kin; says what to install everywhere else."""
    packages = missing_packages()
    if not packages:
        return
    wanted = " ".join(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(f"this machine lacks {wanted}: install them (on Debian: apt-get install {wanted})")
    say(f"installing {wanted}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "-qq"], env=env)
    run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], env=env)
