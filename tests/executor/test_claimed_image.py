"""An image that a claim names is laid under a sandbox that runs already, of root's, an ordinary user's, in a pod."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executor.conftest import Enter, Make, Start, needs_root
from tests.executor.container import HOLDER_DIR, NEEDS_RUNC, NOT_ROOT
from tests.executor.driver import Driver, Refused
from tests.executor.images import image_of, two_images
from tests.executor.test_reset import descriptors
from tests.waiting import wait_until

pytestmark = pytest.mark.root


@pytest.fixture
def images() -> Iterator[Path]:
    with two_images() as found:
        yield found


HOST = {"lower": ["/"], "mask": [], "claimed": True}


def test_each_image_is_fresh_and_stays_over_a_reset(any_box: Driver, images: Path) -> None:
    any_box.run("echo host > /etc/which")
    for name in ("one", "two", "one"):
        runner = any_box.runner()
        any_box.ask("apply", image=image_of(images, name))
        with pytest.raises((EOFError, OSError)):
            runner.ask({"check": True})
        assert any_box.read("/etc/which") == f"{name}\n".encode()
        assert (
            any_box.run("echo dirt >> /etc/which; touch /bin/dirt /dev/shm/dirt; sleep 99 &")["exit_code"]
            == 0
        )
        for _ in range(2):
            answer = any_box.ask("reset")
            assert answer["equal"], answer["proof"]
            assert any_box.run("cat /etc/which; ls /bin/dirt").stdout == f"{name}\n".encode()
        assert (images / name / "rootfs/etc/which").read_text() == f"{name}\n"
    any_box.ask("apply", image=HOST)
    assert any_box.run("test -e /etc/which")["exit_code"] == 1
    assert any_box.ask("reset")["equal"]


def test_what_an_image_leaves_out_is_there(any_box: Driver, images: Path) -> None:
    any_box.ask("apply", image=image_of(images, "one"), network="none", hostname="claimed")
    seen = any_box.run("cat /proc/sys/kernel/hostname /etc/hostname; ls -d /tmp /var/tmp /dev/shm /proc/self")
    assert seen.stdout.split() == [b"claimed", b"box", b"/dev/shm", b"/proc/self", b"/tmp", b"/var/tmp"]
    assert any_box.run("cat /proc/net/dev").stdout.count(b":") == 1
    answer = any_box.ask("reset", network="full")
    assert answer["equal"], answer["proof"]


def test_the_working_directory_is_made_where_the_image_lacks_it(box: Driver, images: Path) -> None:
    (images / "one/rootfs/link").symlink_to("/srv")
    for workdir, made in (
        ("/link/not made/yet", "/srv/not made/yet"),
        ("/etc/which", "/etc/which"),
        ("/bin", "/bin"),
    ):
        box.ask("apply", image={**image_of(images, "one"), "workdir": workdir})
        kind = "file" if made == "/etc/which" else "dir"
        assert box.ask("file", op="stat", path=made)["stat"]["type"] == kind
        assert box.ask("reset")["equal"]
    assert not (images / "one/rootfs/srv").exists()


def test_an_image_that_is_not_there_leaves_the_earlier_one(any_box: Driver, images: Path) -> None:
    any_box.ask("apply", image=image_of(images, "one"))
    for _ in range(3):
        with pytest.raises(Refused) as error:
            any_box.ask("apply", image=image_of(images, "none"))
        assert (error.value.code, error.value.field) == ("bad_request", "image.lower")
        assert any_box.run("cat /etc/which").stdout == b"one\n"
        assert any_box.ask("reset")["equal"]


def test_without_any_root_it_says_that_it_does_not_run(any_box: Driver, images: Path) -> None:
    any_box.ask("apply", image=image_of(images, "one"))
    shutil.rmtree(images / "one")
    with pytest.raises(Refused) as error:
        any_box.ask("apply", image=image_of(images, "none"))
    assert error.value.code == "setup"
    with pytest.raises(Refused) as error:
        any_box.runner()
    assert error.value.code == "conflict"


def test_many_images_leave_nothing(box: Driver, images: Path) -> None:
    box.ask("apply", image=image_of(images, "one"))
    assert box.ask("reset")["equal"]  # the first one opens what is kept open
    before = descriptors(box)
    for number in range(10):
        box.ask("apply", image=image_of(images, ("one", "two")[number % 2]))
        with pytest.raises(Refused):
            box.ask("apply", image=image_of(images, "none"))
        assert box.run("echo x > /x")["exit_code"] == 0
        assert box.ask("reset")["equal"]
    wait_until(lambda: descriptors(box) <= before)


@needs_root
def test_an_image_may_be_mounted_after_the_sandbox_began(make: Make, images: Path) -> None:
    box = make()
    later = images / "later/rootfs"
    later.mkdir(parents=True)
    subprocess.run(["mount", "--bind", "-o", "ro", images / "two/rootfs", later], check=True)
    try:
        box.ask("apply", image=image_of(images, "later"))
        assert box.run("echo more >> /etc/which; cat /etc/which").stdout == b"two\nmore\n"
        assert box.ask("reset")["equal"]
        assert box.run("cat /etc/which").stdout == b"two\n"
    finally:
        subprocess.run(["umount", later], check=True)


@needs_root
def test_its_directories_stay_whatever_has_their_names_later(make: Make, images: Path) -> None:
    box = make()
    box.ask("apply", image=image_of(images, "one"))
    (images / "one").rename(images / "former")
    (images / "two").rename(images / "one")
    for _ in range(2):
        assert box.ask("reset")["equal"]
        assert box.run("cat /etc/which").stdout == b"one\n"
    box.ask("apply", image=image_of(images, "one"))
    assert box.run("cat /etc/which").stdout == b"two\n"


@needs_root
def test_a_mounted_image_stays_after_it_was_unmounted(make: Make, images: Path) -> None:
    box = make()
    later = images / "later/rootfs"
    later.mkdir(parents=True)
    subprocess.run(["mount", "--bind", "-o", "ro", images / "two/rootfs", later], check=True)
    try:
        box.ask("apply", image=image_of(images, "later"))
    finally:
        subprocess.run(["umount", later], check=True)
    assert box.ask("reset")["equal"]
    assert box.run("cat /etc/which").stdout == b"two\n"


@needs_root
def test_it_says_which_shell_the_image_has(make: Make, images: Path) -> None:
    (images / "two/rootfs/bin/sh").unlink()
    (images / "two/rootfs/usr/bin/sh").unlink(missing_ok=True)
    box = make()
    seen = [box.ask("apply", image=image_of(images, name))["shell"] for name in ("one", "two", "one")]
    assert seen == ["/bin/sh", None, "/bin/sh"]
    assert "shell" not in box.ask("apply")


@needs_root
@NEEDS_RUNC
def test_a_restart_in_a_pod_builds_it_again(container: Start, enter: Enter, images: Path) -> None:
    box = container(user=NOT_ROOT)
    root = {**image_of(images, "one"), "mask": [HOLDER_DIR]}
    driver = enter(box, root=root)
    look = "id -u; cat /etc/which"
    assert driver.run(look).stdout == b"0\none\n"
    assert driver.ask("reset")["equal"]
    assert driver.run(look).stdout == b"0\none\n"
    driver.ask("apply", image={**HOST, "mask": [HOLDER_DIR]})
    assert driver.run("id -u").stdout == b"1234\n"


@needs_root
@NEEDS_RUNC
def test_a_restart_without_it_is_not_over_the_container_s_own_root(
    container: Start, enter: Enter, images: Path
) -> None:
    box = container()
    with pytest.raises(Refused) as error:
        enter(box, root=image_of(images, "none"))
    assert error.value.code == "setup"


@needs_root
@NEEDS_RUNC
def test_an_image_in_a_pod_replaces_the_container_s(container: Start, enter: Enter, images: Path) -> None:
    box = container(user=NOT_ROOT)
    driver = enter(box)
    assert driver.run("id -u").stdout == b"1234\n"
    container_s = driver.run("ls -a / /dev").stdout
    for name in ("one", "two"):
        driver.ask("apply", image=image_of(images, name))
        seen = driver.run("id -u; cat /etc/which /etc/resolv.conf; ls /dev/extra")
        assert seen.stdout == f"0\n{name}\nnameserver 192.0.2.53\none\n".encode()
        assert driver.run("id -u", user="app").stdout == b"1234\n"
        assert driver.run("echo dirt > /etc/which; ls /work /volume")["exit_code"] != 0
        written = [path.read_text() for path in (box.directory / "store").glob("*/upper/etc/which")]
        assert "dirt\n" in written
        answer = driver.ask("reset")
        assert answer["equal"], answer["proof"]
        assert driver.read("/etc/which") == f"{name}\n".encode()
    driver.ask("apply", image={**HOST, "mask": [HOLDER_DIR]})
    assert driver.run("id -u").stdout == b"1234\n"
    assert driver.run("ls -a / /dev").stdout == container_s
    assert driver.ask("reset")["equal"]
