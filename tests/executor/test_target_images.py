"""What a container brings along: its image's user, shell and programs, its environment, and a root that may be read-only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.executor.conftest import Enter, Start, needs_root
from tests.executor.container import HOLDER_DIR, NEEDS_RUNC, NOT_ROOT
from tests.executor.driver import Refused

pytestmark = [pytest.mark.root, needs_root, NEEDS_RUNC]


def test_an_image_whose_user_is_not_root(container: Start, enter: Enter) -> None:
    driver = enter(container(user=NOT_ROOT))
    assert (
        driver.run("id -u; id -G; echo $HOME; echo x > $HOME/made").stdout == b"1234\n1234 77\n/home/user\n"
    )
    driver.write("/home/user/sent", b"sent")
    driver.ask("file", op="mkdir", path="/tmp/a/b")
    for path in ("/home/user/sent", "/tmp/a", "/tmp/a/b", "/home/user/made"):
        found = driver.ask("file", op="stat", path=path)["stat"]
        assert (found["uid"], found["gid"]) == (1234, 1234), path
    assert driver.run("echo more >> /home/user/sent; rm -r /tmp/a")["exit_code"] == 0
    assert driver.run("echo x > /etc/passwd")["exit_code"] != 0
    assert driver.run("id -u; id -G; echo $HOME", user="root").stdout == b"0\n0\n/root\n"


def test_an_image_of_a_shell_and_nothing_else(container: Start, enter: Enter) -> None:
    driver = enter(container(only="/bin/sh", readonly=True))
    assert driver.ready["shell"] == "/bin/sh"
    assert (
        driver.run("read -r line < /etc/passwd; echo $line; echo new > /new").stdout
        == b"root:x:0:0::/root:/bin/sh\n"
    )
    assert driver.read("/new") == b"new\n"


def test_an_image_without_a_shell(container: Start, enter: Enter) -> None:
    driver = enter(container(only="/bin/cat"))
    assert driver.ready["shell"] is None
    assert driver.run(["/bin/cat", "/etc/group"]).stdout == b"root:x:0:\nuser:x:1234:\n"
    answer = driver.runner().start("cat /etc/group")
    assert isinstance(answer, dict)
    assert (answer["failed"], answer["field"]) == ("start_failed", "shell")
    assert driver.ask("reset")["equal"]


def test_no_program_of_the_image_runs_beside_the_commands(container: Start, enter: Enter) -> None:
    """An image's own shell would, as the container's first process; commands see nothing of what does."""
    box = container()
    driver = enter(box)
    of_the_container = [
        os.readlink(path / "exe")
        for path in Path("/proc").glob("[0-9]*")
        if same_mounts(path, Path(f"/proc/{box.pid}"))
    ]
    assert of_the_container == [f"{HOLDER_DIR}/holder"]
    seen = driver.run("ls -a / /.sandlot; cat /proc/mounts").stdout
    assert b"sandlot/holder" not in seen
    assert b".sandlot" not in seen
    assert (
        driver.run("mkdir /.sandlot && echo mine > /.sandlot/holder && cat /.sandlot/holder").stdout
        == b"mine\n"
    )
    assert driver.ask("reset")["equal"]
    assert driver.run("cat /.sandlot/holder")["exit_code"] == 1


def same_mounts(one: Path, other: Path) -> bool:
    try:
        return os.stat(one / "ns/mnt").st_ino == os.stat(other / "ns/mnt").st_ino
    except OSError:
        return False


def test_a_read_only_root_takes_changes_beside_it(container: Start, enter: Enter) -> None:
    box = container(readonly=True)
    driver = enter(box)
    assert driver.run("echo x > /work/file; echo y > /volume/kept; echo no > /usr/never")["exit_code"] != 0
    for path, text in (("work/file", "x\n"), ("volume/kept", "y\n")):
        assert driver.read(f"/{path}") == text.encode()
        assert not (box.rootfs / path).exists()
        assert [part.read_text() for part in (box.directory / "store").glob(f"*/upper/{path}")] == [text]
    assert list((box.directory / "volume").iterdir()) == []


def test_what_the_container_gives_every_process(container: Start, enter: Enter) -> None:
    box = container(process={"env": ["PATH=/usr/bin:/bin", "SANDLOT_TARGET=x", "FROM_IMAGE=yes"]})
    with pytest.raises(Refused) as error:
        enter(box, target=None, target_pid=2**22 + 1)
    assert error.value.code == "setup"
    driver = enter(box, target=None, target_pid=box.pid)
    assert driver.ready["env"] == {"PATH": "/usr/bin:/bin", "FROM_IMAGE": "yes"}
    assert driver.ready["workdir"] == "/work"
    assert driver.run("head -c 3 /dev/extra/one | wc -c; stat -c %t,%T /dev/extra/one").stdout == b"3\n1,5\n"
