"""One local stack with warm sandboxes for a framework's tests, and a way to run a script in the framework's environment."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.installed import installed_sdk
from tests.frameworks.listed import frameworks
from tests.frameworks.outcomes import SUITE, read
from tests.frameworks.sdists import source
from tests.prime.environments import WHOLE, IndexUnreachable
from tests.prime.not_installed import not_installed
from tests.prime.server import Server
from tests.prime_rpc.conftest import server, stack

__all__ = ["server", "stack"]

Run = Callable[..., str]
# Of a framework's environment, without our settings and plugins.
PYTEST = ("-m", "pytest", "-q", "-rs", "-c", "/dev/null", "--noconftest", "-p", "no:cacheprovider")


@pytest.fixture(scope="session")
def sdk_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the SDK installed, for PYTHONPATH: with its entry points, by which frameworks find it."""
    return installed_sdk(tmp_path_factory.mktemp("sdk"))


@pytest.fixture(scope="module")
def run_framework(server: Server, sdk_path: Path) -> Run:
    """Runs `python ARGUMENTS` in the environment of a framework; returns what it printed. A failure shows its errors."""

    def run(
        package: str,
        *arguments: str,
        seconds: float = 600,
        environment: Mapping[str, str] | None = None,
        oldest: bool = False,
    ) -> str:
        python = framework_python(package, oldest=oldest)
        with tempfile.TemporaryDirectory() as home:
            variables = {
                **server.variables(Path(home)),
                "PYTHONPATH": str(sdk_path),
                "SANDLOT_URL": server.url,
                "SANDLOT_API_KEY": server.api_key,
                **(environment or {}),
            }
            try:
                done = subprocess.run(
                    [str(python), "-B", *arguments],
                    env=variables,
                    cwd=home,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=seconds,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise AssertionError(f"it did not end: {error.stdout!r} {error.stderr!r}") from None
        told = f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}\n{server.log()[-2000:]}"
        assert done.returncode == 0, told
        return done.stdout

    return run


@pytest.fixture
def run_suite(run_framework: Run, request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a framework's own suite by `python ARGUMENTS`, which end with pytest's; the report has its outcomes, too."""

    def run(package: str, name: str, *arguments: str, **options: Any) -> str:
        report = tmp_path / "suite.xml"
        try:
            return run_framework(package, *arguments, f"--junitxml={report}", **options)
        finally:
            if report.exists():
                # Not by `record_property`, which warns, with the default kind of reports, of another tool's schema.
                request.node.user_properties.append((SUITE, read(report, suite=name)[0].as_text()))

    return run


@pytest.fixture
def run_own_suite(run_suite: Run, sdk_path: Path) -> Run:
    """Runs a file of ours by a framework's pytest, with a directory of its sdist to import its own tests from."""

    def run(package: str, name: str, suite: Path, *, tests: str) -> str:
        if WHOLE not in os.environ:
            pytest.skip(f"the own suite of {package} runs in `make test-frameworks`")
        python = framework_python(package)
        try:
            path = f"{sdk_path}:{source(package, python) / tests}"
        except IndexUnreachable as error:
            pytest.skip(f"needs the sdist of {package}: {str(error).strip().splitlines()[-1]}")
        return run_suite(package, name, *PYTEST, str(suite), environment={"PYTHONPATH": path})

    return run


def framework_python(package: str, *, oldest: bool = False) -> Path:
    """The Python of a framework's environment; ends the test where no package index can be reached."""
    framework = frameworks()[package]
    try:
        return framework.oldest_environment() if oldest else framework.environment()
    except IndexUnreachable as error:
        not_installed(framework.name, error)
