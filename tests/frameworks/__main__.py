"""`python -m tests.frameworks [PACKAGE...]`: the suites of all frameworks, each with its newest release, and a table of them.

`--pinned` runs them with the releases that CI has. Some are larger than in CI, by `variables` of frameworks.toml. It ends with 1 if a test failed or a release could not be installed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field
from pathlib import Path

from tests.frameworks.listed import NEWEST_IN, Framework, frameworks
from tests.prime.environments import WHOLE, EnvironmentFailed, newest_environment

ROOT = Path(__file__).parents[2]


@dataclass
class Row:
    """What became of one framework's suite."""

    framework: Framework
    version: str = ""
    passed: int = 0
    skipped: int = 0
    failed: dict[str, str] = field(default_factory=dict[str, str])  # test -> the first line of why

    def told(self) -> str:
        counts = f"{self.passed} passed, {len(self.failed)} failed, {self.skipped} skipped"
        lines = [f"{self.framework.name:24} {self.version or '-':12} {counts}"]
        lines += [f"    {test}: {why}" for test, why in self.failed.items()]
        return "\n".join(lines)


def main() -> int:
    """Run the suites; return the exit code."""
    known = frameworks()
    top = argparse.ArgumentParser(prog="python -m tests.frameworks", description=__doc__)
    top.add_argument("--pinned", action="store_true", help="the releases that CI has, not the newest")
    top.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"of {', '.join(known)}; default: all")
    arguments = top.parse_args()
    if unknown := set(arguments.packages) - known.keys():
        top.error(f"PACKAGE: not in frameworks.toml: {', '.join(sorted(unknown))}")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="sandlot-frameworks-") as directory:
        for package in arguments.packages or known:
            row = Row(known[package])
            rows.append(row)
            _run(row, Path(directory) / package, pinned=arguments.pinned)
            print(row.told(), flush=True)
    print("\n" + "\n".join(row.told() for row in rows))
    return int(any(row.failed or not row.passed for row in rows))


def _run(row: Row, home: Path, *, pinned: bool) -> None:
    framework = row.framework
    environment = {**framework.variables, **os.environ, WHOLE: "1"}
    try:
        if pinned:
            python = framework.environment()
        else:
            python = newest_environment(
                home,
                framework.package,
                also=framework.also,
                python=framework.python,
                alone=framework.alone,
            )
            environment[NEWEST_IN] = str(home.parent)
    except EnvironmentFailed as error:
        row.failed["installation"] = str(error).strip().splitlines()[-1]
        return
    code = f"import importlib.metadata as m; print(m.version({framework.package!r}))"
    row.version = subprocess.check_output([python, "-c", code], text=True).strip()
    report = home.with_suffix(".xml")
    words = (
        "-p",
        "no:randomly",
        "-q",
        f"--junitxml={report}",
        *framework.tests,
    )
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, env=environment, check=False)
    if not report.exists():
        row.failed["pytest"] = f"exit code {done.returncode}"
        return
    for case in xml.parse(report).getroot().iter("testcase"):
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        if bad is not None:
            row.failed[case.get("name", "")] = (bad.get("message") or "").splitlines()[0][:200]
        elif case.find("skipped") is not None:
            row.skipped += 1
        else:
            row.passed += 1


if __name__ == "__main__":
    sys.exit(main())
