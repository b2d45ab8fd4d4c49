"""Images of several layers, other namespaces to enter, cgroup v2, and clear refusals."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_gateway.backends.local.cgroups import remove_groups

from tests.executor.conftest import CGROUP_TOP, NOBODY, Make
from tests.executor.driver import Driver, Refused
from tests.roots import install

pytestmark = pytest.mark.root


@pytest.fixture
def image() -> Iterator[list[str]]:
    """Two layers: the upper one changes a file of the lower one, which has the programs."""
    # Not pytest's own directory: that one is closed to an ordinary user.
    with tempfile.TemporaryDirectory(prefix="sandlot-test-") as name:
        os.chmod(name, 0o755)
        top, bottom = Path(name, "top"), Path(name, "bottom: with, odd name")
        for layer in (top, bottom):
            (layer / "etc").mkdir(parents=True)
            (layer / "etc" / "which").write_text(layer.name)
        (bottom / "etc" / "only-below").write_text("below")
        (bottom / "tmp").mkdir()
        (bottom / "tmp" / "of-the-image").write_text("x")
        for directory in ("bin", "usr/bin", "lib64"):
            (bottom / directory).mkdir(parents=True, exist_ok=True)
        install(bottom, "cat")
        shutil.copy("/bin/sh", bottom / "bin" / "sh")
        install(bottom, "dash")
        yield [str(top), str(bottom)]


@pytest.mark.parametrize("rootless", [False, True])
def test_layers_topmost_first(make: Make, image: list[str], rootless: bool) -> None:
    if os.geteuid() != 0 and not rootless:
        pytest.skip("needs root: real namespaces, mounts and cgroups")
    box = make(rootless=rootless, root={"lower": image}, limits={}, hostname="layered")
    assert box.run("echo $0").stdout == b"/bin/sh\n"  # the image has no bash
    assert box.read("/etc/which") == b"top"
    assert box.read("/etc/hostname") == b"layered\n"
    assert b"layered" in box.read("/etc/hosts")
    assert box.ask("file", op="stat", path="/tmp")["stat"]["mode"] == "0755"  # as in the image
    box.write("/etc/which", b"changed")
    assert box.read("/etc/which") == b"changed"
    assert box.run("cat /etc/only-below /tmp/of-the-image; echo y > /bin/new").stdout == b"belowx"
    assert box.ask("reset")["equal"]
    assert box.read("/etc/which") == b"top"
    assert box.run("cat /bin/new")["exit_code"] == 1
    assert Path(image[0], "etc/which").read_text() == "top"


def test_an_image_without_a_shell(make: Make, image: list[str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: real namespaces, mounts and cgroups")
    for name in ("bin/sh", "usr/bin/sh", "bin/dash", "usr/bin/dash"):
        Path(image[1], name).unlink(missing_ok=True)
    box = make(root={"lower": image}, limits={})
    assert box.ready["shell"] is None
    assert box.run(["cat", "/etc/which"]).stdout == b"top"
    answer = box.runner().start("cat /etc/which")
    assert isinstance(answer, dict)
    assert (answer["failed"], answer["field"]) == ("start_failed", "shell")


def refused(make: Make, **arguments: object) -> Refused:
    with pytest.raises(Refused) as error:
        make(**arguments)
    assert error.value.code == "setup"
    return error.value


def test_a_root_that_is_not_there(make: Make) -> None:
    assert "/no/such" in str(refused(make, root={"lower": ["/no/such"]}))
    assert "absolute" in str(refused(make, root={"lower": "relative"}))


def test_a_target_that_is_not_there(make: Make) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: real namespaces, mounts and cgroups")
    refused(make, target_pid=2**22 + 1)


NO_NAMESPACES = """
from sandlot_sidecar.executor import syscalls
syscalls.unshare(syscalls.CLONE_NEWUSER)
open("/proc/sys/user/max_user_namespaces", "w").write("0")
syscalls.capset(0)
"""


def test_no_user_namespaces_is_said_clearly(make: Make) -> None:
    """In a user namespace that allows no further ones, the message names the setting."""
    if os.geteuid() != 0:
        pytest.skip("needs root: real namespaces, mounts and cgroups")
    driver = Driver(prefix=NOBODY, first=NO_NAMESPACES)
    try:
        with pytest.raises(Refused) as error:
            driver.ask("setup", root={"lower": ["/"]}, limits={})
        assert error.value.code == "setup"
        assert "user.max_user_namespaces" in str(error.value)
    finally:
        driver.close()


def test_setup_is_once(box: Driver) -> None:
    with pytest.raises(Refused) as error:
        box.ask("setup", root={"lower": ["/"]})
    assert error.value.code == "conflict"


def test_nothing_before_setup(make: Make) -> None:
    driver = Driver()
    try:
        for do in ("runner", "alive", "reset", "apply"):
            with pytest.raises(Refused) as error:
                driver.ask(do)
            assert error.value.code == "conflict"
        with pytest.raises(Refused):
            driver.ask("no-such-request")
        with pytest.raises(Refused):
            driver.ask("connect", port=1)
        with pytest.raises(Refused):
            driver.ask("file", op="stat", path="/")
    finally:
        driver.close()


@contextlib.contextmanager
def container(tmp_path: Path) -> Iterator[int]:
    """A process in namespaces of its own, as a pod's container is."""
    (tmp_path / "mark").write_text("of the container\n")
    script = (
        f"mount --make-rprivate /; hostname contained; mount -t tmpfs x /srv; cp {tmp_path}/mark /srv/mark; "
        "mount -t tmpfs y /opt; touch /opt/net; mount --bind /proc/self/ns/net /opt/net; echo ready; exec sleep 600"
    )
    process = subprocess.Popen(
        ["unshare", "-m", "-u", "-i", "-n", "sh", "-c", script], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    # Groups of its own: the executor makes and removes `sandlot` below a container's, which is where stacks live
    # whose processes are in the same group as this test.
    root, name = Path("/sys/fs/cgroup"), f"sandlot-test-container-{process.pid}"
    groups = [path.parent / name for path in [*root.glob("cgroup.procs"), *root.glob("*/cgroup.procs")]]
    groups = [group for group in groups if group.parent.name != "cpuset"]  # which wants its processors named
    try:
        for group in groups:
            group.mkdir()
            (group / "cgroup.procs").write_text(str(process.pid))
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        # A group stays busy for a moment after its last process.
        assert remove_groups([group for group in groups if group.exists()], timeout=30) == []


@pytest.mark.parametrize("overlay", [True, False])
def test_the_namespaces_of_a_container(make: Make, tmp_path: Path, overlay: bool) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: real namespaces, mounts and cgroups")
    with container(tmp_path) as pid:
        box = make(target_pid=pid, root={"overlay": overlay}, limits={}, hostname="contained")
        assert box.ready["overlay"] is overlay, box.ready["notes"]
        seen = box.run(
            "cat /srv/mark; hostname; tail -n +3 /proc/net/dev | cut -d: -f1; set -- /proc/[0-9]*; echo $#"
        )
        assert seen.stdout.split() == [b"of", b"the", b"container", b"contained", b"lo", b"2"]
        if overlay:
            box.run("echo dirt > /usr/dirt")
            assert not Path(f"/proc/{pid}/root/usr/dirt").exists()
            answer = box.ask("reset")
            assert answer["equal"], answer
            assert box.run("ls /usr/dirt")["exit_code"] == 2
        else:
            with pytest.raises(Refused) as error:
                box.ask("reset")
            assert error.value.code == "no_overlay"
        box.close()


def test_its_end_leaves_the_groups_of_others_alone(make: Make) -> None:
    """Also those that are empty at that moment: a sandbox's that just begins."""
    if os.geteuid() != 0:
        pytest.skip("needs root: real namespaces, mounts and cgroups")
    memory = Path("/sys/fs/cgroup/memory")
    if not (memory / "cgroup.procs").exists():
        pytest.skip("needs cgroup v1, where the test can make groups of its own")
    above = memory / CGROUP_TOP / "above"
    above.mkdir(parents=True)
    try:
        box = make(cgroup_parent=f"{CGROUP_TOP}/above/shared/mine", limits={})
        beside = above / "shared" / "beside"
        beside.mkdir()
        box.ask("end")
        assert not (above / "shared" / "mine").exists()
        assert beside.exists()
        beside.rmdir()
        (above / "shared").rmdir()
        alone = make(cgroup_parent=f"{CGROUP_TOP}/above/own/mine", limits={})
        alone.ask("end")
        assert [child for child in above.iterdir() if child.is_dir()] == []
    finally:
        for top in Path("/sys/fs/cgroup").glob(f"*/{CGROUP_TOP}/above"):
            for group in [*sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True), top]:
                group.rmdir()
