"""What a run of all suites tells: counts of ours and of frameworks' own, reasons, and the tables that are made of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.listed import Framework, all_listed, frameworks
from tests.frameworks.outcomes import Outcomes, read
from tests.frameworks.recorded import BEGIN, CLUSTER, END, LOCAL, recorded, rows_of, with_rows
from tests.prime.environments import WHOLE
from tests.tools import tool

ROOT = Path(__file__).parents[2]
SUITE = """
import json, pytest
from tests.frameworks.outcomes import Outcomes

def test_own(request):
    outcomes = Outcomes("its own", passed=44, skipped={"test_root": "root may"}, failed={"test_x": "1 != 2"})
    request.node.user_properties.append(("suite", outcomes.as_text()))

def test_wrong():
    assert 1 == 2, "first | line\\nsecond"

@pytest.mark.skip(reason="no npm")
def test_skipped(): ...

@pytest.mark.xfail(reason="not yet", strict=True)
def test_known():
    assert False
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a suite as frameworks have it, run by pytest."""
    directory = tmp_path_factory.mktemp("suite")
    file = directory / "test_made_up.py"
    file.write_text(SUITE)
    words = ("-p", "no:cacheprovider", "--noconftest", "-q", f"--rootdir={directory}", "-c", "/dev/null")
    command = [sys.executable, "-m", "pytest", *words, f"--junitxml={directory / 'report.xml'}", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return directory / "report.xml"


FRAMEWORK = Framework(
    name="It", package="it", version="1.0", use="", page="", tests=(), cluster=("test_own",)
)


def test_a_report_has_our_tests_and_the_suites_that_they_ran(report: Path) -> None:
    ours, own = read(report)
    assert ours == Outcomes(
        "Sandlot's tests",
        passed=1,
        skipped={"test_made_up::test_skipped": "no npm", "test_made_up::test_known": "not yet"},
        failed={"test_made_up::test_wrong": "AssertionError: first | line"},
    )
    assert (own.suite, own.passed, own.failed) == ("its own", 44, {"test_x": "1 != 2"})


def test_tests_of_the_same_name_in_two_modules_are_two(tmp_path: Path) -> None:
    cases = "".join(
        f'<testcase classname="{module}" name="test_x"><failure message="{module}"/></testcase>'
        for module in ("one", "two")
    )
    (tmp_path / "report.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert read(tmp_path / "report.xml")[0].failed == {"one::test_x": "one", "two::test_x": "two"}


def test_every_cell_may_have_bars() -> None:
    named = Framework(name="It | that", package="it", version="1.0", use="", page="", tests=())
    rows = rows_of(
        named, "it 1 | 2", [Outcomes("a|b", failed={"test[x|y]": "\\| or |"})], where=LOCAL, run="2026"
    )
    page = with_rows(f"{BEGIN}\n{END}\n", rows, order=["It | that"])
    assert recorded(page) == rows
    assert recorded(with_rows(page, rows, order=["It | that"])) == rows


def test_a_part_of_the_cluster_s_run_is_not_recorded() -> None:
    """The rows would tell of the part as of the whole."""
    done = subprocess.run(
        ["bash", str(ROOT / "tools/test_frameworks_cluster.sh"), "-k", "none"],
        env={**os.environ, "PAGE": "/nonexistent/page.md", "PATH": "/nonexistent:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "PAGE" in done.stderr


def test_a_run_replaces_the_rows_of_what_it_ran(report: Path) -> None:
    page = f"# Title\n\n{BEGIN}\n{END}\nafter\n"
    first = rows_of(FRAMEWORK, "it 0.9", [Outcomes("gone", 1)], where=LOCAL, run="2026-01-01")
    other = Framework(name="Other", package="other", use="", page="", tests=())
    beside = rows_of(other, "other 2", [Outcomes("its", 2)], where=LOCAL, run="2026-01-01")
    far = rows_of(FRAMEWORK, "it 0.9", [Outcomes("far", 3)], where=CLUSTER, run="2026-01-01")
    page = with_rows(page, [*far, *first, *beside], order=["It", "Other"])
    assert [row.suite for row in recorded(page)] == ["gone", "its", "far"]
    new = rows_of(FRAMEWORK, "it 1.0", read(report), where=LOCAL, run="2026-02-02")
    page = with_rows(page, new, order=["It", "Other"])
    assert [(row.framework, row.suite, row.run) for row in recorded(page)] == [
        ("It", "Sandlot's tests", "2026-02-02"),
        ("It", "its own", "2026-02-02"),
        ("Other", "its", "2026-01-01"),
        ("It", "far", "2026-01-01"),
    ]
    assert recorded(page)[0].failed == "1: test_made_up::test_wrong: AssertionError: first | line"
    assert page.startswith("# Title\n")
    assert page.endswith("\nafter\n")
    with pytest.raises(ValueError, match="lacks the markers"):
        recorded("# Title\n")


def test_readmes_table_has_the_pins_and_what_the_last_runs_showed(report: Path) -> None:
    rows = [
        *rows_of(FRAMEWORK, "it 1.1", read(report), where=LOCAL, run="2026-02-02"),
        *rows_of(FRAMEWORK, "it 1.0", [Outcomes("far", 3)], where=CLUSTER, run="2026-02-03"),
    ]
    line = tool("frameworks_table").table([FRAMEWORK], rows).splitlines()[-1]
    assert line == (
        "| [It]() |  | it 1.0 | it 1.1, 2026-02-02, local backend: 45 passed, 2 failed; "
        "it 1.0, 2026-02-03, cluster, gVisor: 3 passed |"
    )


def test_the_cluster_s_report_is_told_apart_by_framework(report: Path, tmp_path: Path) -> None:
    """The real list: E2B's tests, say, are some of a module."""
    text = report.read_text().replace("test_own", "test_the_javascript_sdks_work[e2b_script.mjs]")
    (tmp_path / "report.xml").write_text(text)
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    words = ("-m", "tests.frameworks.recorded", str(tmp_path / "report.xml"), str(page))
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True)
    found = [(row.framework, row.suite, row.passed, row.where) for row in recorded(page.read_text())]
    name = "E2B's JavaScript SDKs"
    assert found == [(name, "Sandlot's tests", "1", CLUSTER), (name, "its own", "44", CLUSTER)]


def test_newest_runs_resolve_requirements_anew_where_an_installer_can() -> None:
    listed = frameworks()
    assert listed["e2b-code-interpreter"].newest_also == ("e2b",)
    assert listed["harbor"].newest_also == ("prime-sandboxes",)
    assert listed["skyrl"].newest_also == listed["skyrl"].also
    assert (listed["smolagents"].newest_also, listed["smolagents"].also) == (
        ("docker", "numpy", "pytest"),
        (),
    )


def test_a_run_of_pinned_releases_has_no_tests_of_other_releases() -> None:
    prime = frameworks()["prime-sandboxes"]
    words = ("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:randomly")
    done = subprocess.run(
        [sys.executable, *words, *prime.selection(pinned=True)],
        cwd=ROOT,
        env={**os.environ, WHOLE: "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    collected = [line for line in done.stdout.splitlines() if "::" in line]
    assert len(collected) > 5
    assert [line for line in collected if not line.endswith(f"[{prime.version}]")] == []


def test_every_test_of_the_list_exists() -> None:
    named = [test for framework in all_listed() for test in (*framework.tests, *framework.without)]
    for test in named:
        file, _, function = test.partition("::")
        text = (ROOT / file).read_text()
        assert f"def {function.partition('[')[0]}(" in text if function else text, test
    cluster = "".join(file.read_text() for file in (ROOT / "tests/kubernetes/frameworks").glob("test_*.py"))
    modules = {file.stem for file in (ROOT / "tests/kubernetes/frameworks").glob("test_*.py")}
    for name in (name for framework in all_listed() for name in framework.cluster):
        assert name in modules or f'"{name}"' in cluster, name
