"""Roots over images whose own directories are links, whose files lead out of them, or whose users are unusual."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executor.conftest import Make, needs_root, user_namespaces_allowed
from tests.executor.container import install

pytestmark = [pytest.mark.root, needs_root]


@pytest.fixture
def image() -> Iterator[Path]:
    """A root with a shell, two programs and nothing else."""
    with tempfile.TemporaryDirectory(prefix="sandlot-test-") as name:
        root = Path(name)
        root.chmod(0o555)
        (root / "etc").mkdir()
        for program in ("/bin/sh", "/usr/bin/id", "/bin/cat"):
            install(root, program)
        yield root


def test_hosts_are_those_of_the_image_and_never_a_file_of_the_machine(make: Make, image: Path) -> None:
    with tempfile.NamedTemporaryFile() as secret:
        secret.write(b"of the machine")
        secret.flush()
        (image / "etc/hosts").symlink_to(secret.name)
        box = make(root={"lower": [str(image)]}, limits={})
        assert b"of the machine" not in box.read("/etc/hosts")
        assert b"localhost" in box.read("/etc/hosts")
        # The same path inside the image counts.
        inside = image / secret.name.lstrip("/")
        inside.parent.mkdir(parents=True)
        inside.write_text("192.0.2.1 of-the-image\n")
        box = make(root={"lower": [str(image)]}, limits={})
        assert b"of-the-image" in box.read("/etc/hosts")


def test_hosts_that_are_a_pipe_do_not_stop_the_start(make: Make, image: Path) -> None:
    os.mkfifo(image / "etc/hosts")
    box = make(root={"lower": [str(image)]}, limits={})
    assert b"localhost" in box.read("/etc/hosts")
    (image / "etc/hosts").unlink()
    (image / "etc/hosts").symlink_to("hosts")
    assert b"localhost" in make(root={"lower": [str(image)]}, limits={}).read("/etc/hosts")


def test_directories_that_are_links_inside_the_image(make: Make, image: Path) -> None:
    for name in ("usr/etc", "var/tmp", "data"):
        (image / name).mkdir(parents=True, exist_ok=True)
    (image / "var/tmp").chmod(0o1770)
    (image / "etc").rename(image / "usr/etc")
    (image / "etc").symlink_to("/usr/etc")
    (image / "tmp").symlink_to("var/tmp")
    box = make(root={"lower": [str(image)]}, limits={}, hostname="linked")
    assert box.run("cat /usr/etc/hostname /etc/hostname").stdout == b"linked\nlinked\n"
    assert box.ask("file", op="stat", path="/var/tmp")["stat"]["mode"] == "1770"
    assert box.run("echo x > /tmp/y; cat /var/tmp/y").stdout == b"x\n"
    assert box.ask("reset")["equal"]
    assert box.read("/usr/etc/hostname") == b"linked\n"


def test_directories_for_temporary_files_that_the_image_lacks_are_for_everybody(
    make: Make, image: Path
) -> None:
    box = make(root={"lower": [str(image)]}, limits={})
    for path in ("/tmp", "/var/tmp"):
        assert box.ask("file", op="stat", path=path)["stat"]["mode"] == "1777"


def test_mount_points_that_are_links_lead_nowhere(make: Make, image: Path) -> None:
    for name in ("dev", "proc", "sys"):
        (image / name).symlink_to(f"/{name}")
    box = make(root={"lower": [str(image)]}, limits={})
    assert box.run("echo x > /dev/null; cat /sys/kernel/notes > /dev/null")["exit_code"] == 0
    for name in ("dev", "proc", "sys"):
        assert box.ask("file", op="stat", path=f"/{name}")["stat"]["type"] == "dir"
    assert box.run("cat /proc/self/comm").stdout == b"cat\n"
    assert box.ask("reset")["equal"]


def test_the_root_has_the_image_s_owner_and_mode(make: Make, image: Path) -> None:
    os.chown(image, 1234, 4321)
    box = make(root={"lower": [str(image)]}, limits={})
    found = box.ask("file", op="stat", path="/")["stat"]
    assert (found["mode"], found["uid"], found["gid"]) == ("0555", 1234, 4321)


def test_users_and_groups_are_those_of_a_container(make: Make, image: Path) -> None:
    (image / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n")
    (image / "etc/group").write_text(
        "root:x:0:\ndisk:x:6:root\napp:x:1000:\nvideo:x:44:app\nstaff:x:50:app\n"
    )
    box = make(root={"lower": [str(image)]}, limits={})
    seen = {
        user: box.run("id -u; id -g; id -G; echo $HOME", user=user).stdout.decode().split("\n")[:4]
        for user in (None, "root", "app", 1000, "1000:44", "app:4242", 4242)
    }
    assert seen == {
        None: ["0", "0", "0 6", "/root"],
        "root": ["0", "0", "0 6", "/root"],
        "app": ["1000", "1000", "1000 44 50", "/home/app"],
        1000: ["1000", "1000", "1000 44 50", "/home/app"],
        "1000:44": ["1000", "44", "44 50", "/home/app"],
        "app:4242": ["1000", "4242", "4242 44 50", "/home/app"],
        4242: ["4242", "0", "0", "/"],
    }
    # Root's own groups may change while it runs.
    box.write("/etc/group", b"root:x:0:\nadm:x:4:root\n")
    assert box.run("id -G", user="root").stdout == b"0 4\n"


@pytest.fixture
def above(image: Path) -> Iterator[Path]:
    """A layer over the image that has nothing but `etc`."""
    with tempfile.TemporaryDirectory(prefix="sandlot-test-") as name:
        (Path(name) / "etc").mkdir()
        yield Path(name)


def hosts_of(make: Make, *lower: Path) -> bytes:
    box = make(root={"lower": [str(path) for path in lower]}, limits={})
    assert box.ask("reset")["equal"]
    return box.read("/etc/hosts")


def test_a_link_of_a_lower_layer_below_a_directory_of_an_upper_one_is_not_followed(
    make: Make, image: Path, above: Path
) -> None:
    with tempfile.TemporaryDirectory(prefix="sandlot-test-") as outside:
        (Path(outside) / "hosts").write_text("192.0.2.1 of-the-machine\n")
        (image / "etc").rmdir()
        (image / "etc").symlink_to(outside)
        assert b"of-the-machine" not in hosts_of(make, above, image)


@pytest.mark.parametrize("how", ["whiteout", "opaque", "file"])
def test_what_an_upper_layer_hides_is_not_read(make: Make, image: Path, above: Path, how: str) -> None:
    (image / "etc/hosts").write_text("192.0.2.1 of-the-image\n")
    assert b"of-the-image" in hosts_of(make, above, image)
    if how == "whiteout":
        os.mknod(above / "etc/hosts", stat.S_IFCHR, os.makedev(0, 0))
    elif how == "opaque":
        os.setxattr(above / "etc", "trusted.overlay.opaque", b"y")
    else:
        (above / "etc/hosts").write_text("192.0.2.2 of-the-layer\n")
    seen = hosts_of(make, above, image)
    assert (b"of-the-image" in seen, b"of-the-layer" in seen) == (False, how == "file")


def test_a_layer_between_that_has_a_file_hides_what_is_below(make: Make, image: Path, above: Path) -> None:
    (image / "etc/hosts").write_text("192.0.2.1 of-the-image\n")
    with tempfile.TemporaryDirectory(prefix="sandlot-test-") as between:
        (Path(between) / "etc").write_text("")
        assert b"of-the-image" not in hosts_of(make, above, Path(between), image)


def test_the_layers_of_an_ordinary_user_s_image_are_merged(make: Make, image: Path, above: Path) -> None:
    if not user_namespaces_allowed():
        pytest.skip("user namespaces, or this interpreter, are not allowed to an ordinary user here")
    with tempfile.TemporaryDirectory(prefix="sandlot-test-") as outside:
        (Path(outside) / "secret").write_text("secret")
        for path in (above, Path(outside)):
            path.chmod(0o755)
        (above / "usr").mkdir()
        (above / "etc/up").write_text("up")
        (image / "etc/down").write_text("down")
        (image / "srv").symlink_to(outside)
        (above / "srv").mkdir()
        box = make(root={"lower": [str(above), str(image)]}, rootless=True, limits={"pids": 100})
        assert box.run("cat /etc/up /etc/down").stdout == b"updown"
        assert box.run("cat /srv/secret")["exit_code"] == 1
