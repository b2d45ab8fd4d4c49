"""`files.*(user=…)` through SDK, gateway and sidecar: the kernel decides, and refusals are typed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot import BadRequest, Client, FileConflict, FileDenied, FileError, Sandbox

from tests.stack import Stack

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def box(shared_stack: Stack) -> Iterator[Sandbox]:
    with (
        Client(url=shared_stack.url, api_key=shared_stack.api_key) as client,
        Sandbox.create("host", client=client) as made,
    ):
        yield made


def test_each_call_acts_as_the_user(box: Sandbox, tmp_path: Path) -> None:
    files = box.files
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "f").write_text("up")
    files.mkdir("/tmp/u", mode=0o700, user="nobody")
    files.write("/tmp/u/a", b"x", user="nobody")
    files.write("/tmp/u/s", iter((b"pie", b"ces")), user=65534)
    files.upload(tmp_path / "tree", "/tmp/u/tree", user="nobody")
    files.move("/tmp/u/a", "/tmp/u/b", user="nobody")
    files.chmod("/tmp/u/b", mode=0o600, user="nobody")
    assert {(entry.name, entry.user) for entry in files.list("/tmp/u", user="nobody")} == {
        ("b", "nobody"),
        ("s", "nobody"),
        ("tree", "nobody"),
    }
    assert files.read("/tmp/u/s", user="nobody") == b"pieces"
    assert files.read_text("/tmp/u/tree/f", user="nobody") == "up"
    assert files.download("/tmp/u/tree", tmp_path / "back", user="nobody") == 2
    assert box.exec("cat /tmp/u/tree/f; rm /tmp/u/tree/f", user="nobody").stdout == "up"
    for refused in (
        lambda: files.write("/tmp/u/c", b"x", user="daemon"),
        lambda: files.read("/tmp/u/b", user="daemon"),
        lambda: files.stat("/tmp/u/b", user="daemon"),
        lambda: files.exists("/tmp/u/b", user="daemon"),
        lambda: files.list("/tmp/u", user="daemon"),
        lambda: files.mkdir("/tmp/u/d", user="daemon"),
        lambda: files.move("/tmp/u/b", "/tmp/b", user="daemon"),
        lambda: files.chmod("/tmp/u", mode=0o777, user="daemon"),
        lambda: files.chmod("/tmp/u/b", owner="daemon", user="nobody"),
        lambda: files.remove("/tmp/u", recursive=True, user="daemon"),
        lambda: files.upload(tmp_path / "tree", "/tmp/u/up", user="daemon"),
        lambda: files.download("/tmp/u/tree", tmp_path / "none", user="daemon"),
    ):
        with pytest.raises(FileDenied) as denied:
            refused()
        assert denied.value.code == "permission"
    files.remove("/tmp/u", recursive=True, user="nobody")
    assert not files.exists("/tmp/u")


def test_cp_of_a_user(box: Sandbox, shared_stack: Stack) -> None:
    box.files.write("/tmp/secret", b"x", mode=0o600)
    environment = {**os.environ, "SANDLOT_URL": shared_stack.url, "SANDLOT_API_KEY": shared_stack.api_key}
    command = [sys.executable, "-m", "sandlot", "cp", f"{box.id}:/tmp/secret", "-", "--user", "nobody"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode != 0, "Permission denied" in done.stderr) == (True, True), done


def test_an_unknown_user_is_named_and_nothing_is_written(box: Sandbox) -> None:
    with pytest.raises(BadRequest, match="no such user in the sandbox: no-one") as error:
        box.files.write("/tmp/none", b"x", user="no-one")
    assert error.value.field == "user"
    assert not box.files.exists("/tmp/none")


def test_a_path_that_cannot_be_used_is_a_file_error(box: Sandbox) -> None:
    box.exec("ln -s /tmp/loop /tmp/loop", check=True)
    for path in ("/tmp/loop", "/tmp/" + "n" * 300, "/tmp/" + "n/" * 3000):
        with pytest.raises(FileError) as error:
            box.files.read(path)
        assert (error.value.code, error.value.path) == ("bad_path", path)
    with pytest.raises(FileConflict):
        box.files.read("/etc/passwd/x")


def test_links_that_race_with_a_user_s_files_give_no_one_root_s(box: Sandbox) -> None:
    box.exec("mkdir -m 700 /tmp/root; echo root > /tmp/root/f; mkdir -m 777 /tmp/r /tmp/r/d", check=True)
    # /tmp/r/x is by turns a directory of the user's and a link to root's. RENAME_EXCHANGE (2) leaves no moment without
    # it, and needs no name that a write's new parent directories could have taken.
    swap = (
        "import ctypes, os, time\nos.mkdir('/tmp/r/x')\nopen('/tmp/r/x/f', 'w').write('own')\n"
        "os.symlink('/tmp/root', '/tmp/r/l')\nlibc = ctypes.CDLL(None)\nprint('races', flush=True)\n"
        "while not libc.renameat2(-100, b'/tmp/r/l', -100, b'/tmp/r/x', 2): time.sleep(1e-4)\n"
    )
    answers = {b"own": 0, b"denied": 0}
    with box.start(["python3", "-c", swap], user="nobody") as racer:
        assert "races" in str(next(racer))
        for _ in range(25):
            for attempt in (
                lambda: box.files.read("/tmp/r/x/f", user="nobody"),
                lambda: box.files.write("/tmp/r/x/f", b"own", user="nobody"),
                lambda: box.files.remove("/tmp/r/x/g", user="nobody"),
            ):
                try:
                    assert attempt() in (b"own", 3)
                    answers[b"own"] += 1
                except FileError as error:
                    answers[b"denied"] += isinstance(error, FileDenied)
        assert racer.poll() is None, "the links do not race any more"
    assert all(answers.values()), answers
    assert box.exec("cat /tmp/root/f; ls /tmp/root").stdout == "root\nf\n"
