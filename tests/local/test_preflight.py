"""The look at start whether this user may make sandboxes, and what it says when the kernel refuses."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_gateway.backends.local.preflight import CannotIsolate, check_namespaces, explain

from tests.local.others import python_for_others

# A user namespace whose own limit of further ones is zero: there the kernel refuses for real.
REFUSED = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x10000000) == 0
print("unshared", flush=True)
sys.stdin.readline()
open("/proc/sys/user/max_user_namespaces", "w").write("0")
sys.path[:0] = sys.argv[1:]
from sandlot_gateway.backends.local import preflight
os.setgid(1234)
os.setuid(1234)
try:
    preflight.check_namespaces()
except preflight.CannotIsolate as error:
    print(error, flush=True)
"""


def test_this_machine_can_or_says_why_not() -> None:
    # Root has to be able, as all tests with real sandboxes need it; for others it is the machine's choice.
    if os.geteuid() == 0:
        check_namespaces()
        return
    try:
        check_namespaces()
    except CannotIsolate as error:
        assert "user namespaces" in str(error)


@pytest.fixture
def directory() -> Iterator[Path]:
    """One that each user may read; pytest's own are root's."""
    with tempfile.TemporaryDirectory(prefix="sandlot-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to map users")
def test_a_refusal_names_the_sysctl(directory: Path) -> None:
    python, paths = python_for_others(directory, become=[])
    with subprocess.Popen(
        [*python, "-c", REFUSED, *paths],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "unshared\n"
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{child.pid}/{name}").write_text("0 0 65536")
        child.stdin.write("\n")
        child.stdin.close()
        message = child.stdout.read()
    assert "may not make user namespaces" in message
    assert "user.max_user_namespaces = 0" in message
    assert "sysctl -w user.max_user_namespaces=" in message


@pytest.mark.parametrize(
    ("sysctl", "value"),
    [
        ("kernel.unprivileged_userns_clone", "0"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1"),
        ("user.max_user_namespaces", "0"),
    ],
)
def test_each_known_sysctl_is_named(tmp_path: Path, sysctl: str, value: str) -> None:
    path = tmp_path / sysctl.replace(".", "/")
    path.parent.mkdir()
    path.write_text(value + "\n")
    message = explain("user|1|Operation not permitted\n", root=False, sysctls=tmp_path)
    assert f"{sysctl} = {value}" in message
    assert "Operation not permitted" in message


def test_without_a_culprit_the_container_is_suspected(tmp_path: Path) -> None:
    assert "seccomp" in explain("user|1|Operation not permitted", root=False, sysctls=tmp_path)
    assert "--cap-add SYS_ADMIN" in explain(
        "namespaces|1|Operation not permitted", root=True, sysctls=tmp_path
    )


def test_a_trial_that_dies_is_no_yes() -> None:
    with pytest.raises(CannotIsolate, match="exploded"):
        check_namespaces(command=(sys.executable, "-c", "raise SystemExit('exploded')"))
