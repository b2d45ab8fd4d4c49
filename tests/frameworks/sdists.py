"""The source distribution of an installed package, for tests of its own that the wheel lacks."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tests.cluster.lock import exclusive
from tests.prime.environments import CACHE, uv, version_in


def source(package: str, python: Path) -> Path:
    """The unpacked sdist of the version that this Python has; downloaded once by pip, then found again.

    Raises EnvironmentFailed, IndexUnreachable.
    """
    version = version_in(python, package)
    home = CACHE / f"{package}-{version}-source"
    with exclusive(CACHE / f"{home.name}.lock", why="another program that downloads it"):
        if not home.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as directory:
                # uv has no `download`. Only the package itself: pip would build its build system, too.
                words = ("--quiet", "--no-deps", "--no-binary", package, "--dest", directory)
                pip = ("tool", "run", "--quiet", "--python", str(python), "--from", "pip", "pip")
                uv(*pip, "download", *words, f"{package}=={version}")
                (archive,) = Path(directory).glob("*.tar.gz")
                subprocess.run(("tar", "-xf", archive, "-C", directory), check=True)
                archive.unlink()
                (made,) = Path(directory).iterdir()
                made.rename(home)
    return home
