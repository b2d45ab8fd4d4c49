"""Published prime-sandboxes packages of both generations, unmodified, in one scenario against a real stack."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.policies import skip_without_egress_policies
from tests.prime.conftest import run_client
from tests.prime.environments import WHOLE, newest_python, version_in
from tests.prime.server import Server

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

PACKAGE = "prime-sandboxes"
# Version, and the `vm` that its user gives; 0.2.18 to 0.2.42 choose their way to run commands by it.
CASES = (
    ("0.2.6", None),
    ("0.2.13", None),
    ("0.2.27", "container"),
    ("0.2.27", "vm"),
    ("0.2.36", "container"),
    ("0.2.36", "vm"),
    ("0.2.42", None),
    ("0.2.42", "vm"),
    ("0.3.0", None),
    ("0.3.2", None),
    ("0.4.0", None),
    ("0.4.7", None),
    ("0.5.0", None),
    ("0.5.1", None),
)
ON_CLUSTER = Path(__file__).parents[1] / "kubernetes" / "prime"


def _cases() -> list[tuple[str, str | None]]:
    """Those whose scenario `make test-cluster` does not run on the cluster anyway, and the oldest and the newest.

    In a run of newest releases only that.
    """
    if python := newest_python(PACKAGE):
        return [(version_in(python, PACKAGE), None)]
    if WHOLE in os.environ:
        return list(CASES)
    text = "".join(path.read_text() for path in ON_CLUSTER.glob("test_versions_*.py"))
    there = set(re.findall(r'\("([\d.]+)", (?:None|"(\w+)")\)', text))
    return [case for case in CASES if case in (CASES[0], CASES[-1]) or (case[0], case[1] or "") not in there]


@dataclass(frozen=True)
class Case:
    """One run of the scenario, and what its version can do."""

    version: tuple[int, ...]
    mode: str | None
    tcp: bool  # whether the server has ports for TCP exposures
    seen: dict[str, Any]

    @property
    def rpc(self) -> bool:
        """Whether commands go over RPC, else over REST."""
        return self.version >= (0, 3) or self.mode == "vm"

    def since(self, *version: int) -> bool:
        return self.version >= version


@pytest.fixture(scope="module", params=_cases(), ids=lambda case: "-".join(filter(None, case)))
def case(request: pytest.FixtureRequest, server: Server) -> Case:
    version, mode = request.param
    seen = run_client(
        server,
        Path(__file__).with_name("client_script"),
        *([mode] if mode else []),
        package=PACKAGE,
        version=version,
    )
    assert seen["version"] == version
    return Case(tuple(map(int, version.split("."))), mode, server.tcp, seen)


def test_create_and_wait(case: Case):
    assert case.seen["sandbox"] == ["RUNNING", "RUNNING", "scenario", True]
    assert case.seen["vm"] == (case.rpc if case.since(0, 2, 18) else None)


def test_commands(case: Case):
    seen = case.seen["commands"]
    assert seen["env"] == ["b c made\n/tmp\n", "err\n", 3]
    assert seen["bash"] == ["hello you\n3\na\tb\nA\nother\n1\n", "", 0]
    assert seen["missing"] == 127
    assert seen["bytes"] == "a\ufffdb"
    assert seen["orphan"] == ["started\n", "", 0]
    assert seen["large"] == [3_000_000, ""]
    assert seen["characters"] == [50_000, ""]
    if case.rpc:
        assert seen["cwd"][0] == "APIError"
        assert "cwd: working directory /no/such/place" in seen["cwd"][1]
    else:
        assert seen["cwd"][2] == 126
        assert "cwd: working directory /no/such/place" in seen["cwd"][1]
    if case.version in ((0, 2, 6), (0, 2, 13), (0, 2, 27), (0, 3, 0), (0, 3, 2), (0, 4, 0)):
        assert seen["user"] is None  # these know no users
    elif case.rpc and not case.since(0, 3):
        assert seen["user"][0] == "ValueError"  # the client's own rule
    else:
        assert seen["user"] == ["0\n", "", 0]


def test_timeout_is_typed_and_kills(case: Case):
    seen = case.seen["timeouts"]
    assert seen["error"] == "CommandTimeoutError"
    assert seen["took"] < 90  # of 333
    assert seen["left"] == ""


def test_files(case: Case):
    seen = case.seen["files"]
    assert seen["told"] == [True, 5_000_000]
    assert seen["same"] == [True, True]
    assert seen["missing"] == "APIError"
    assert seen["bytes"] == [10, "0123456789"]


def test_a_directory_instead_of_a_file_is_refused_once_with_the_reason(case: Case):
    seen = case.seen["files"]
    for kind, text in seen["refused"]:
        assert kind == "APIError"
        assert "400" in text  # who has asked four times says so, and nothing of the status
    assert ["is a directory" in text for _, text in seen["refused"]] == [True, True, False]
    assert "names a directory" in seen["refused"][2][1]


def test_windows_of_files(case: Case):
    expected: dict[str, Any] = {"whole": ["0123456789", 10], "missing": "SandboxFileNotFoundError"}
    if case.since(0, 2, 36):
        expected |= {
            "2+3": ["234", 2, 10, True],
            "-4+100": ["6789", 6, 10, False],
            "8+100": ["89", 8, 10, False],
            "50+5": ["", 10, 10, False],
            "too large": "SandboxFileTooLargeError",
        }
    assert case.seen["reading"] == (expected if case.since(0, 2, 27) else None)


def test_background_jobs(case: Case):
    expected: dict[str, Any] = {"before": False, "after": [4, "open\nb c\n", "err\n"]}
    if case.since(0, 2, 27):
        expected["run"] = [5, "done\n", ""]
    assert case.seen["jobs"] == expected


def test_live_processes(case: Case):
    seen = case.seen["live"]
    if not case.since(0, 2, 36):
        assert seen is None
    elif not case.rpc:
        assert "only supported for VM sandboxes" in seen["refused"][1]
    else:
        assert seen == {
            "lines": ["got one\n", "got end\n"],
            "code": 6,
            "stderr": "err\nerr\n",
            "terminate": -15,
            "kill": -9,
        }


def test_network_is_changed_and_what_cannot_be_held_refused(case: Case):
    seen = case.seen["network"]
    if not case.since(0, 2, 36):
        assert seen is None
        return
    assert seen["status"] == [None, [], True]
    assert seen["same"] is True
    skip_without_egress_policies()
    assert seen["names"] == [["example.org", "*.example.org"], None, 2, True]
    assert seen["none"] == [[], None, 3, True]
    assert seen["some"] == [None, ["192.0.2.0/24"], 4, True]
    assert seen["open"] == [None, [], 5, True]


def test_exposed_ports(case: Case):
    seen = case.seen["ports"]
    if case.since(0, 3):
        assert seen is None
    elif case.rpc:
        assert "not yet supported for VM sandboxes" in seen["refused"]
    else:
        tcp = {"tcp": "hello\n", "udp": True} if case.tcp and case.since(0, 2, 13) else {}
        assert seen == {"text": "hello\n", "listed": [[True, "web"]], "after": [], **tcp}


def test_many_by_label(case: Case):
    seen = case.seen["many"]
    expected: dict[str, Any] = {
        "waited": ["RUNNING"],
        "names": ["many-3", "many-2", "many-1", "many-0"],
        "pages": 2,
        "total": 4,
        "other": 0,
        "by id": [True, [{"sandbox_id": "unknown", "error": "not found"}]],
        "by label": [True, []],
        "left": True,
    }
    if case.since(0, 2, 42):
        expected["statuses"] = [["RUNNING"], [["unknown", "NOT_FOUND"]]]
    assert seen == expected


def test_ended_is_typed(case: Case):
    seen = case.seen["ended"]
    # 0.2.6 and 0.2.13 know no typed error for what their gateway answers.
    kind = "SandboxNotRunningError" if case.since(0, 2, 27) else "APIError"
    assert seen["exec"][0] == kind
    assert seen["wait"] == "SandboxNotRunningError"
    assert seen["status"] == "TERMINATED"
    assert seen["unknown"].startswith("HTTP 404: no sandbox 'unknown': ")
    assert seen["logs"] == ""


def test_end_of_its_time_is_typed(case: Case):
    assert case.seen["lifetime"] == {
        "status": "TIMEOUT",
        "exec": "SandboxTimeoutError" if case.since(0, 2, 27) else "APIError",
        "wait": "SandboxTimeoutError" if case.since(0, 2, 13) else "SandboxNotRunningError",
    }


def test_refusals_are_typed_and_clear(case: Case):
    seen = case.seen["typed"]
    assert seen["key"] == ["UnauthorizedError", "APIError"]
    assert seen["image"][0] == "APIError"
    assert re.match("HTTP 422: docker_image: .*/no/such/directory", seen["image"][1])
    assert seen["get"].startswith("HTTP 404: no sandbox 'unknown': ")


def test_templates(case: Case):
    has = (0, 2, 13) <= case.version < (0, 3)
    expected = {"credentials": [], "image": True, "bad": False}
    assert case.seen["templates"] == (expected if has else None)


def test_synchronous_client(case: Case):
    gone = "SandboxNotRunningError" if case.since(0, 2, 27) else "APIError"
    assert case.seen["synchronous"] == {"exec": ["made\n", "", 0], "cat": ["sync", "", 0], "gone": gone}
