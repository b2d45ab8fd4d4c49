"""The source distribution of an installed package, for tests of its own that the wheel lacks."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from tests.cluster.lock import exclusive
from tests.prime.environments import CACHE, EnvironmentFailed, IndexUnreachable, uv, version_in


def source(package: str, python: Path) -> Path:
    """The unpacked sdist of the version that this Python has; downloaded once by pip, then found again.

    Raises IndexUnreachable, and EnvironmentFailed for what else kept pip from it, such as a release without an sdist.
    """
    version = version_in(python, package)
    home = CACHE / f"{package}-{version}-source"
    with exclusive(CACHE / f"{home.name}.lock", why="another program that downloads it"):
        if not home.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as directory:
                _download(f"{package}=={version}", python, directory)
                (archive,) = Path(directory).glob("*.tar.gz")
                subprocess.run(("tar", "-xf", archive, "-C", directory), check=True)
                archive.unlink()
                (made,) = Path(directory).iterdir()
                made.rename(home)
    return home


def _download(wanted: str, python: Path, directory: str) -> None:
    # uv has no `download`. Only the package itself: pip would build its build system, too.
    words = ("--no-deps", "--no-binary", wanted.partition("==")[0], "--dest", directory)
    pip = ("tool", "run", "--quiet", "--python", str(python), "--from", "pip", "pip")
    # pip does not know uv's variables. Not as an argument: errors show these, and a URL may have a password.
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    try:
        uv(*pip, "download", *words, wanted, variables={"PIP_INDEX_URL": index} if index else {})
    except EnvironmentFailed as error:
        if "after connection broken" in str(error):  # pip's warning of each retry
            raise IndexUnreachable(str(error)) from error
        raise
