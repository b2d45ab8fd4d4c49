"""The list of frameworks that tests run unmodified (frameworks.toml), and the environment of each.

`python -m tests.frameworks.listed` makes all: on the cluster's network there is no index.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from tests.prime.environments import environment, make_all, newest_python

LIST = Path(__file__).with_name("frameworks.toml")


@dataclass(frozen=True, kw_only=True)
class Framework:
    name: str
    package: str
    version: str = ""
    use: str
    page: str
    tests: tuple[str, ...]
    also: tuple[str, ...] = ()
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
        if self.alone or "--no-deps" in self.also:
            return self.also
        return tuple(requirement.partition("==")[0] for requirement in self.also)

    def oldest_environment(self) -> Path:
        """The Python of its oldest version's environment. Raises EnvironmentFailed, IndexUnreachable."""
        return environment(self.package, self.oldest, also=self.also, python=self.python)

    def environment(self) -> Path:
        """The Python of its environment. Raises EnvironmentFailed, IndexUnreachable."""
        if newest := newest_python(self.package):  # a suite may need another framework's, which does not run
            return newest
        return environment(self.package, self.version, also=self.also, python=self.python, alone=self.alone)


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


if __name__ == "__main__":
    listed = frameworks().values()
    make_all((framework.name, framework.environment) for framework in listed)
    make_all((framework.name, framework.oldest_environment) for framework in listed if framework.oldest)
