"""Runs mutation tests; fails on a mutant that survives without an explanation.

`tests/mutation.toml` lists the functions to mutate and the tests to run, by group. `tests/mutation-survivors.toml`
explains each equivalent mutant. Works on a copy in reports/mutation.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutation_groups import EXPLAINED, ROOT, Change, Group, check, explained, read

WORK = ROOT / "reports" / "mutation"
MUTMUT = Path(sys.executable).with_name("mutmut")
# mutmut's status of a mutant: pytest's exit status, a signal, or mutmut's own. A hang counts as killed.
SURVIVED, NO_TESTS, UNTRIED, HUNG = 0, (5, 33), None, -signal.SIGXCPU
KILLED = (1, 3, HUNG)

# No shrinking and no randomness: a failure is enough, and the same mutants survive each time. Unused plugins cost time.
_UNUSED = (
    "anyio",
    "cacheprovider",
    "platformdirs",
    "pytest_cov",
    "schemathesis",
    "xdist",
    "xdist.looponfail",
)
_PYTEST = [
    "--hypothesis-profile=mutation",
    "-ptests.plugins.hangs",
    *(f"-pno:{name}" for name in _UNUSED),
]


@dataclass(frozen=True)
class Mutant:
    """A mutant with mutmut's name for it and its status."""

    name: str
    status: int | None

    @property
    def function(self) -> str:
        """`module.Class.function` of `module.xǁClassǁfunction__mutmut_3`."""
        module, _, mangled = self.name.rpartition(".")
        mangled = re.sub(r"__mutmut_\d+$", "", mangled)
        name = mangled.removeprefix("x_") if "ǁ" not in mangled else mangled[2:].replace("ǁ", ".")
        return f"{module}.{name}"


class Run:
    """A run of a group's mutants, in a directory of its own."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.directory = WORK / group.name

    def prepare(self) -> None:
        """Make a copy of the code and the tests with mutmut's configuration."""
        shutil.rmtree(self.directory, ignore_errors=True)
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / self._group.source, self.directory / "src", ignore=ignore)
        shutil.copytree(ROOT / "tests", self.directory / "tests", ignore=ignore)
        pytest_options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
        mutmut_options = {
            "source_paths": ["src"],
            "only_mutate": [f"src/{file}" for file in self._group.files],
            "pytest_add_cli_args": [*_PYTEST, *self._group.arguments],
            "pytest_add_cli_args_test_selection": self._group.tests,
            # The process that forks the test runs must not run tests itself: a test's leftovers (threads, an event
            # loop) would hang the next run, and count as a kill.
            "process_isolation": "forkserver",
            # Wall-clock limit for what tests/plugins/hangs.py does not see: long, so that a busy machine does not
            # count as a hang.
            "timeout_constant": 100.0,
            "timeout_multiplier": 3.0,
            "use_git_change_detection": False,
        }
        lines = ["[tool.pytest.ini_options]", *_toml(pytest_options), "[tool.mutmut]", *_toml(mutmut_options)]
        (self.directory / "pyproject.toml").write_text("\n".join(lines) + "\n")
        # Python caches that a directory missing at its start has no modules.
        (self.directory / "mutants" / "src").mkdir(parents=True)

    def reload_tests(self) -> None:
        """Copy the tests again, for a run of some mutants after a change of the tests."""
        shutil.copytree(ROOT / "tests", self.directory / "tests", dirs_exist_ok=True)
        (self.directory / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)

    def run(self, names: list[str]) -> None:
        """Run these mutants, or those of patterns, as many at once as there are cores."""
        mutants = self.directory / "mutants"
        environment = {**os.environ, "PYTHONPATH": f"{mutants / 'src'}:{mutants}"}
        command = [str(MUTMUT), "run", "--max-children", str(os.cpu_count() or 1), *names]
        with (self.directory / "mutmut.log").open("w") as log:
            status = subprocess.run(command, cwd=self.directory, env=environment, stdout=log, stderr=log)
        if status.returncode:
            sys.exit(f"mutation: mutmut failed; see {log.name}")

    @property
    def patterns(self) -> list[str]:
        """mutmut's names of all mutants of the group."""
        return [f"*{part.replace('.', '*')}__mutmut_*" for part in self._group.functions]

    def mutants(self) -> list[Mutant]:
        """Return the mutants of the group's functions."""
        found: list[Mutant] = []
        for path in sorted((self.directory / "mutants" / "src").rglob("*.meta")):
            statuses = json.loads(path.read_text())["exit_code_by_key"]
            found += [Mutant(name, status) for name, status in statuses.items()]
        return [one for one in found if self._group.has(one.function)]

    def changes(self, mutants: list[Mutant]) -> dict[Mutant, Change]:
        """Return each mutant's change, from mutmut's files, which hold the original beside its mutants."""
        bodies: dict[str, list[str]] = {}
        for path in sorted((self.directory / "mutants" / "src").rglob("*.meta")):
            text = path.with_suffix("").read_text()
            lines = text.splitlines()
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    bodies[node.name] = [line.strip() for line in lines[node.lineno - 1 : node.end_lineno]]
        return {mutant: _change(mutant, bodies) for mutant in mutants}


def _toml(options: dict[str, Any]) -> list[str]:
    """Format the options as TOML, whose strings, numbers, booleans and lists are those of JSON."""
    return [f"{name} = {json.dumps(value)}" for name, value in options.items()]


def _change(mutant: Mutant, bodies: dict[str, list[str]]) -> Change:
    mutated = mutant.name.rpartition(".")[2]
    original = re.sub(r"\d+$", "orig", mutated)
    before = [line.replace(original, "f") for line in bodies[original]]
    after = [line.replace(mutated, "f") for line in bodies[mutated]]
    lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]
    gone, come = ([line[1:] for line in lines if line[0] == sign] for sign in "-+")
    return mutant.function, "\n".join(gone), "\n".join(come)


def judge(run: Run) -> tuple[Counter[str], list[str]]:
    """Count a group's mutants by result, and return the counts with the errors."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    reasons = explained()
    mutants = run.mutants()
    survivors: set[Change] = set()
    counts["hung"] = sum(mutant.status == HUNG for mutant in mutants)
    counts["killed"] = sum(mutant.status in KILLED for mutant in mutants) - counts["hung"]
    for mutant, change in run.changes([one for one in mutants if one.status not in KILLED]).items():
        if mutant.status == SURVIVED and change in reasons:
            counts["explained"] += 1
            survivors.add(change)
            continue
        what = {SURVIVED: "survived", UNTRIED: "was not tried"}.get(mutant.status, f"status {mutant.status}")
        what = "no test calls it" if mutant.status in NO_TESTS else what
        counts["unexplained"] += 1
        function, before, after = change
        wrong.append(f"{function}: {what} ({mutant.name})\n    - {before}\n    + {after}")
    functions = {mutant.function for mutant in mutants}
    wrong += [
        f"{change[0]}: listed in {EXPLAINED.name}, and no survivor\n    - {change[1]}\n    + {change[2]}"
        for change in reasons
        if change[0] in functions and change not in survivors
    ]
    return counts, wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("groups", nargs="*", help="groups of tests/mutation.toml; default: all")
    parser.add_argument(
        "--survivors",
        action="store_true",
        help="try only those mutants again that survived the last run, or that it did not reach",
    )
    parser.add_argument("--judge", action="store_true", help="run no tests; evaluate the last run again")
    options = parser.parse_args()
    if wrong := check():
        sys.exit("\n".join(f"mutation: {problem}" for problem in wrong))
    configured = read()
    unknown = set(options.groups) - set(configured)
    if unknown:
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are {', '.join(configured)}")
    failed = False
    table: list[str] = []
    for name in options.groups or configured:
        run = Run(configured[name])
        if options.survivors:
            run.reload_tests()
            if names := [one.name for one in run.mutants() if one.status not in KILLED]:
                run.run(names)
        elif not options.judge:
            run.prepare()
            run.run(run.patterns)
        counts, wrong = judge(run)
        for problem in wrong:
            print(problem)
        failed = failed or bool(wrong)
        noticed = counts["killed"] + counts["hung"]
        table.append(
            f"{name:8} {counts.total():5} changes, {noticed} noticed ({counts['hung']} by a hang), "
            f"{counts['explained']} explained, {counts['unexplained']} unexplained: "
            f"{noticed / max(1, counts.total()):.1%}"
        )
    print("\n".join(table))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
