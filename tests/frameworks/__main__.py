"""`python -m tests.frameworks [PACKAGE...]`: the suites of all frameworks, each with its newest release, and a table of them.

`--pinned` runs them with the releases that CI has, `--write docs/framework-runs.md` keeps the table there. Some are larger
than in CI, by `variables` of frameworks.toml. It ends with 1 if a test failed or a release could not be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.frameworks.listed import Framework, all_listed, install_npm, releases_of
from tests.frameworks.newest import described, newest_runnable
from tests.frameworks.outcomes import OURS, Outcomes, read
from tests.frameworks.recorded import LOCAL, rows_of, today, with_rows
from tests.prime.environments import (
    CACHE,
    NEWEST_IN,
    WHOLE,
    EnvironmentFailed,
    newest_environment,
    version_in,
)

ROOT = Path(__file__).parents[2]


@dataclass
class Run:
    """What became of one framework's suites."""

    framework: Framework
    release: str = ""
    found: list[Outcomes] = field(default_factory=list[Outcomes])

    @property
    def ok(self) -> bool:
        return all(each.passed and not each.failed for each in self.found)

    def told(self) -> str:
        lines: list[str] = []
        for each in self.found:
            counts = f"{each.passed} passed, {len(each.failed)} failed, {len(each.skipped)} skipped"
            lines.append(f"{self.framework.name:27} {self.release or '-':28} {each.suite:36} {counts}")
            for what, reasons in (("failed", each.failed), ("skipped", each.skipped)):
                lines += [f"    {what}: {test}: {why}" for test, why in reasons.items()]
        return "\n".join(lines)

    def failed(self, test: str, why: str) -> None:
        self.found = [Outcomes(OURS, failed={test: why})]


def main() -> int:
    """Run the suites; return the exit code."""
    listed = all_listed()
    known = {framework.package: framework for framework in listed}
    top = argparse.ArgumentParser(prog="python -m tests.frameworks", description=__doc__)
    top.add_argument("--pinned", action="store_true", help="the releases that CI has, not the newest")
    top.add_argument("--write", type=Path, metavar="PAGE", help="put the rows into the table of this page")
    top.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"of {', '.join(known)}; default: all")
    arguments = top.parse_args()
    if unknown := set(arguments.packages) - known.keys():
        top.error(f"PACKAGE: not in frameworks.toml: {', '.join(sorted(unknown))}")
    os.environ[WHOLE] = "1"  # for the environments made here, and for pytest
    runs: list[Run] = []
    CACHE.mkdir(parents=True, exist_ok=True)
    # Not in /tmp, which sandboxes with the image `host` do not see: scripts run their own Python in them.
    with tempfile.TemporaryDirectory(prefix="sandlot-frameworks-", dir=CACHE) as directory:
        for package in arguments.packages or known:
            run = Run(known[package])
            runs.append(run)
            _run(run, Path(directory) / package, pinned=arguments.pinned)
            print(run.told(), flush=True)
            if arguments.write is not None:
                _write(arguments.write, run, listed, pinned=arguments.pinned)
    print("\n" + "\n".join(run.told() for run in runs))
    return int(not all(run.ok for run in runs))


def _write(page: Path, run: Run, listed: list[Framework], *, pinned: bool) -> None:
    """Write after each framework, so that an interrupted run keeps what it has."""
    date = f"{today()}, pinned" if pinned else today()
    new = rows_of(run.framework, run.release, run.found, where=LOCAL, run=date)
    page.write_text(with_rows(page.read_text(), new, order=[framework.name for framework in listed]))


def _run(run: Run, home: Path, *, pinned: bool) -> None:
    framework = run.framework
    environment = {**framework.variables, **os.environ}
    try:
        run.release = _installed(framework, None if pinned else home)
    except EnvironmentFailed as error:
        run.failed("installation", str(error).strip().splitlines()[-1])
        return
    if not pinned:
        environment[NEWEST_IN] = str(home.parent)
    report = home.with_suffix(".xml")
    # A worker sees only its own mounts and control groups: no leaks of what else this machine does.
    alone = ("-n", "1", "-p", "no:randomly", "-q", f"--junitxml={report}")
    words = (*alone, *framework.selection(pinned=pinned))
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, env=environment, check=False)
    if report.exists():
        run.found = read(report)
    else:
        run.failed("pytest", f"exit code {done.returncode}")


def _installed(framework: Framework, home: Path | None) -> str:
    """Install a framework, its newest release into `home` or else what is pinned; return what the table says of it.

    The newest is that of all Pythons of this machine; where a later one needs another Python, the table says so.
    """
    if framework.npm:
        return framework.release if home is None else _newest_of_npm(framework, home)
    if home is None:
        python = framework.environment()
        return f"{framework.package} {version_in(python, framework.package)}"
    found = newest_runnable(framework.package, lowest=framework.python)
    python = newest_environment(
        home,
        framework.package,
        also=framework.newest_also,
        interpreter=found.interpreter,
        alone=framework.alone,
    )
    installed = version_in(python, framework.package)
    try:
        return described(framework.package, installed, python=found.python, lowest=framework.python)
    except EnvironmentFailed:  # of a note: the suites run all the same
        return f"{framework.package} {installed} (newest unknown)"


def _newest_of_npm(framework: Framework, home: Path) -> str:
    names = [package.rpartition("@")[0] for package in framework.npm]
    install_npm(home, tuple(names))

    def version(name: str) -> str:
        return json.loads((home / "node_modules" / name / "package.json").read_text())["version"]

    return releases_of(tuple(f"{name}@{version(name)}" for name in names))


if __name__ == "__main__":
    sys.exit(main())
