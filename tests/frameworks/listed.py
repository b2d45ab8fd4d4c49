"""The list of frameworks that tests run unmodified (frameworks.toml), and the environment of each.

`python -m tests.frameworks.listed` makes all: on the cluster's network there is no index.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from tests.prime.environments import environment, make_all

LIST = Path(__file__).with_name("frameworks.toml")
NEWEST_IN = (
    "SANDLOT_NEWEST_FRAMEWORKS"  # a directory with environments of newest releases, which tests use then
)


@dataclass(frozen=True, kw_only=True)
class Framework:
    name: str
    package: str
    version: str
    use: str
    page: str
    tests: tuple[str, ...]
    also: tuple[str, ...] = ()
    python: str = "3.11"
    alone: bool = False
    oldest: str = ""
    variables: dict[str, str] = field(
        default_factory=dict[str, str]
    )  # with which `-m tests.frameworks` runs them

    def oldest_environment(self) -> Path:
        """The Python of its oldest version's environment. Raises EnvironmentFailed, IndexUnreachable."""
        return environment(self.package, self.oldest, also=self.also, python=self.python)

    def environment(self) -> Path:
        """The Python of its environment. Raises EnvironmentFailed, IndexUnreachable."""
        if newest := os.environ.get(NEWEST_IN):
            return Path(newest) / self.package / "bin" / "python"
        return environment(self.package, self.version, also=self.also, python=self.python, alone=self.alone)


def frameworks() -> dict[str, Framework]:
    """All of the list, by package."""
    listed = tomllib.loads(LIST.read_text()).get("frameworks", [])
    lists = ("tests", "also")
    made = (
        Framework(**{name: tuple(value) if name in lists else value for name, value in each.items()})
        for each in listed
    )
    return {framework.package: framework for framework in made}


if __name__ == "__main__":
    listed = frameworks().values()
    make_all((framework.name, framework.environment) for framework in listed)
    make_all((framework.name, framework.oldest_environment) for framework in listed if framework.oldest)
