"""The list of frameworks that tests run unmodified (frameworks.toml), and the environment of each.

`python -m tests.frameworks.listed` makes all, npm's too: on the cluster's network there is no index.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import tomllib
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.cluster.lock import exclusive
from tests.prime.environments import (
    CACHE,
    WHOLE,
    EnvironmentFailed,
    environment,
    make_all,
    newest_python,
)

LIST = Path(__file__).with_name("frameworks.toml")
# Packages of npm that could not be installed: without an answer of the registry each test would wait for it again.
_refused: dict[tuple[str, ...], EnvironmentFailed] = {}


@dataclass(frozen=True, kw_only=True)
class Framework:
    name: str
    package: str
    version: str = ""
    use: str
    page: str
    tests: tuple[str, ...]
    also: tuple[str, ...] = ()
    own_suite: tuple[str, ...] = ()
    python: str = "3.11"
    alone: bool = False
    by_version: bool = False
    oldest: str = ""
    npm: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    variables: dict[str, str] = field(
        default_factory=dict[str, str]
    )  # with which `-m tests.frameworks` runs them

    @property
    def release(self) -> str:
        """The packages and versions that tests pin."""
        return releases_of(self.npm) if self.npm else f"{self.package} {self.version}"

    def selection(self, *, pinned: bool) -> list[str]:
        """Arguments of pytest that select its tests, for the pinned release or the newest one."""
        left_out = [f"--deselect={test}" for test in self.without]
        one = ["-k", self.version] if pinned and self.by_version else []
        return [*left_out, *one, *self.tests]

    @property
    def newest_also(self) -> tuple[str, ...]:
        """Its further requirements in a run of newest releases: without versions, where the installer resolves them."""
        every = (*self.also, *self.own_suite)
        if self.alone or "--no-deps" in self.also:
            return every
        return tuple(requirement.partition("==")[0] for requirement in every)

    def oldest_environment(self) -> Path:
        """The Python of its oldest version's environment. Raises EnvironmentFailed, IndexUnreachable."""
        return environment(self.package, self.oldest, also=self.also, python=self.python)

    def environment(self) -> Path:
        """The Python of its environment. Raises EnvironmentFailed, IndexUnreachable."""
        if newest := newest_python(self.package):  # a suite may need another framework's, which does not run
            return newest
        also = (*self.also, *self.own_suite) if WHOLE in os.environ else self.also
        return environment(self.package, self.version, also=also, python=self.python, alone=self.alone)


def all_listed() -> list[Framework]:
    """All of the list, in its order."""
    return [
        Framework(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in each.items()}
        )
        for each in tomllib.loads(LIST.read_text()).get("frameworks", [])
    ]


def frameworks() -> dict[str, Framework]:
    """Those of the list that are Python's, by package."""
    return {framework.package: framework for framework in all_listed() if not framework.npm}


def releases_of(npm: tuple[str, ...]) -> str:
    """Packages of npm with their versions, as `NAME VERSION, NAME VERSION`."""
    return ", ".join(" ".join(package.rsplit("@", 1)) for package in npm)


def npm_modules(packages: tuple[str, ...]) -> Path:
    """The directory `node_modules` with these packages, installed once, then found again. Raises EnvironmentFailed."""
    home = CACHE / ("node-" + "-".join(packages).replace("/", "-"))
    with exclusive(CACHE / f"{home.name}.lock", why="another program that installs packages of npm"):
        if not home.exists():
            if packages in _refused:
                raise _refused[packages]
            with tempfile.TemporaryDirectory(dir=CACHE) as directory:
                made = Path(directory) / "made"
                try:
                    install_npm(made, packages, seconds=200)
                except EnvironmentFailed as error:
                    _refused[packages] = error
                    raise
                made.rename(home)
    return home / "node_modules"


def install_npm(home: Path, packages: tuple[str, ...], *, seconds: float | None = None) -> None:
    """Install packages of npm below `home`. Raises EnvironmentFailed."""
    if shutil.which("npm") is None:
        raise EnvironmentFailed("needs npm")
    words = ("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(home))
    try:
        done = subprocess.run(
            [*words, *packages], capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFailed(str(error)) from error
    if done.returncode != 0:
        raise EnvironmentFailed(done.stderr or f"npm: exit code {done.returncode}")


if __name__ == "__main__":
    listed = frameworks().values()
    make_all((framework.name, framework.environment) for framework in listed)
    make_all((framework.name, framework.oldest_environment) for framework in listed if framework.oldest)
    make_all((each.name, partial(npm_modules, each.npm)) for each in all_listed() if each.npm)
