"""A claim's image is laid under a generation without an owner by an exchange of its root: all the rest stays, if fresh."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandlot_sidecar.executor import wire

from tests.executor.conftest import Box, Enter, Make, Start
from tests.executor.container import HOLDER_DIR, NEEDS_RUNC, NOT_ROOT
from tests.executor.disk import space
from tests.executor.driver import Driver, Refused, RunnerChannel
from tests.executor.images import image_of, two_images
from tests.executor.plants import IPC_PLANTS, PLANTS
from tests.executor.preparing import prepare, reset
from tests.executor.processes import processes_below
from tests.executor.test_ahead import name_of
from tests.executor.test_claimed_image import HOST
from tests.executor.test_reset import descriptors
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces, mounts and cgroups"),
]

# Planted below the root itself, which is thrown away; /dev stays.
IN_ROOT = {
    kind
    for kind, (step, _) in PLANTS.items()
    if step == "root" and "device" not in kind and "shared" not in kind
}
LOOK = "ls -A / /dev /dev/shm /dev/mqueue /etc; cat /etc/* /proc/sysvipc/*; set -- /proc/[0-9]*; echo processes $#"


@pytest.fixture
def images() -> Iterator[Path]:
    with two_images() as found:
        yield found


def lay(box: Driver, image: dict[str, Any], **claim: Any) -> bool:
    """Lay it as the server does; return whether the runners are still there."""
    answer = box.ask("apply", image=image, unused=True, **claim)
    box.ask("record")
    return answer["runners"]


def tell(runner: RunnerChannel) -> None:
    wire.send_packet(runner.sock, {"laid": True})


def named(box: Driver, name: str) -> list[int]:
    return [pid for pid in processes_below(box.process.pid) if name_of(pid) == name]


def named_runners(box: Driver) -> list[int]:
    """The only runner, which has its name a moment after its start."""
    return wait_until(lambda: named(box, "sandlot-runner"))


def mounts_of(box: Driver) -> list[list[str]]:
    """Without the numbers, which each mount has of its own."""
    (init,) = named(box, "init")
    return sorted(line.split()[3:] for line in Path(f"/proc/{init}/mountinfo").read_text().splitlines())


def test_only_the_root_is_another(start: Box, images: Path) -> None:
    box = start()
    runner = box.runner()
    inits, runners = named(box, "init"), named_runners(box)
    assert box.ask("check") == {"seq": box._seq, "ok": True, "fresh": True}
    for name in ("one", "two", "one"):
        assert lay(box, image_of(images, name))
        tell(runner)
        assert runner.run("cat /etc/which").stdout == f"{name}\n".encode()
        assert (named(box, "init"), named(box, "sandlot-runner")) == (inits, runners)
        for pid in (*inits, *runners):
            assert Path(f"/proc/{pid}/root/etc/which").read_text() == f"{name}\n"
        exchanged = mounts_of(box), runner.run(LOOK).stdout
        assert not box.ask("apply", image=image_of(images, name))["runners"]
        assert (mounts_of(box), box.run(LOOK).stdout) == exchanged
        wait_until(lambda: not named(box, "sandlot-runner"), what="the end of the last command's runner")
        runner = box.runner()
        inits, runners = named(box, "init"), named_runners(box)


def test_a_reset_proves_what_was_exchanged(start: Box, images: Path) -> None:
    box = start()
    for name in ("one", "two"):
        assert lay(box, image_of(images, name))
        fresh = box.run(LOOK).stdout
        for _ in range(2):
            dirt = "echo dirt >> /etc/which; touch /bin/dirt /dev/dirt /dev/shm/dirt; sleep 5555 &"
            assert box.run(dirt)["exit_code"] == 0
            answer = box.ask("reset")
            assert answer["equal"], answer["proof"]
            assert box.run(LOOK).stdout == fresh
        assert (images / name / "rootfs/etc/which").read_text() == f"{name}\n"


@pytest.mark.timeout(300)  # each kind is a few seconds on a loaded machine
def test_what_would_stay_beside_the_root_has_it_built_anew(start: Box, images: Path) -> None:
    box = start()
    assert lay(box, image_of(images, "one"))
    fresh = box.run(LOOK).stdout
    for kind, (_, command) in (PLANTS | IPC_PLANTS).items():
        box.ask("apply", image={**HOST, "mask": [HOLDER_DIR]})
        assert box.run(command)["exit_code"] == 0, kind
        assert lay(box, image_of(images, "one")) == (kind in IN_ROOT), kind
        assert box.run(LOOK).stdout == fresh, kind
        assert box.ask("reset")["equal"], kind  # so that the next kind has a fresh one


def test_a_process_that_comes_after_the_check_does_not_stay(start: Box, images: Path) -> None:
    box = start()
    assert box.ask("check")["fresh"]
    assert box.run("setsid sleep 5555 > /dev/null 2>&1 &")["exit_code"] == 0
    assert not lay(box, image_of(images, "one"))
    assert box.run("ls -d /proc/[0-9]*").stdout.split()[0] == b"/proc/1"
    assert box.ask("reset")["proof"]["processes"] == []
    assert box.run("echo x > /dev/shm/x")["exit_code"] == 0
    assert not box.ask("check")["fresh"]


def test_terminals_and_users_are_those_of_the_image(start: Box, images: Path) -> None:
    box = start()
    runner = box.runner()
    before = runner.start("id -u; readlink /proc/self/fd/0", pty={"cols": 80, "rows": 24})
    assert not isinstance(before, dict)
    before.read_until(b"/dev/pts/0")
    assert before.wait()["exit_code"] == 0
    assert lay(box, image_of(images, "two"))
    tell(runner)
    assert runner.run("id -u", user="app").stdout == b"1234\n"
    after = runner.start("readlink /proc/self/fd/0; cat /etc/which", pty={"cols": 80, "rows": 24})
    assert not isinstance(after, dict)
    assert b"/dev/pts/0" in after.read_until(b"two")
    assert after.wait()["exit_code"] == 0


def test_nothing_of_the_earlier_image_can_be_reached(start: Box, images: Path) -> None:
    box = start()
    (images / "one/rootfs/secret").write_text("secret")
    assert lay(box, image_of(images, "one"))
    assert lay(box, image_of(images, "two"))
    seek = "cat /secret /../secret /proc/1/root/secret /proc/self/cwd/secret /proc/self/mountinfo; ls /proc/self/fd"
    found = box.run(seek).stdout
    assert b"secret" not in found
    assert b"image-" not in found.partition(b"lowerdir=")[2].partition(b"\n")[2]


def test_the_owner_s_first_command_comes_after_the_record(make: Make, images: Path) -> None:
    box = make()
    assert box.ask("apply", image=image_of(images, "one"), unused=True)["runners"]
    for request in ({"do": "reset"}, {"do": "prepare", "probe": {}, "exit_code": 0}):
        with pytest.raises(Refused) as error:
            box.ask(request.pop("do"), **request)
        assert error.value.code == "conflict"
    box.ask("record")
    assert box.ask("reset")["equal"]
    box.ask("record")  # there is nothing to record: it changes nothing
    assert box.run("echo dirt > /dirt")["exit_code"] == 0
    assert box.ask("reset")["equal"]
    assert box.run("ls /dirt")["exit_code"] != 0


def test_an_image_that_is_not_there_leaves_the_earlier_one(start: Box, images: Path) -> None:
    box = start()
    assert lay(box, image_of(images, "one"))
    for lower in ([str(images / "none")], [str(images / "two/rootfs")] * 2):
        with pytest.raises(Refused) as error:
            box.ask("apply", image={**image_of(images, "two"), "lower": lower}, unused=True)
        assert (error.value.code, error.value.field) == ("bad_request", "image.lower")
        assert box.run("cat /etc/which").stdout == b"one\n"
        assert box.ask("reset")["equal"]
    assert lay(box, image_of(images, "two"))
    assert box.run("cat /etc/which").stdout == b"two\n"


def test_limits_and_network_of_the_claim_hold(make: Make, images: Path) -> None:
    box = make()
    for memory in (64 << 20, 128 << 20):
        limits = {"memory": memory, "pids": 50}
        assert lay(box, image_of(images, "one"), limits=limits)
        exchanged = [mount for mount in mounts_of(box) if mount[1] == "/dev/shm"], space(box)[0]
        box.ask("apply", image=image_of(images, "one"), limits=limits)
        anew = [mount for mount in mounts_of(box) if mount[1] == "/dev/shm"], space(box)[0]
        assert exchanged == anew
    assert not lay(box, image_of(images, "two"), network="none")
    assert box.run("cat /proc/net/dev").stdout.count(b":") == 1
    assert lay(box, image_of(images, "one"), network="none")
    assert box.run("cat /proc/net/dev").stdout.count(b":") == 1
    assert box.ask("reset")["equal"]


def test_what_was_prepared_for_the_earlier_image_goes(start: Box, images: Path) -> None:
    box = start()
    for wait in (True, False):
        prepare(box, keep=True)
        wait_until(lambda: len(named(box, "init")) == 2)
        assert lay(box, image_of(images, "one"))
        if wait:
            wait_until(lambda: len(named(box, "init")) == 1 and not named(box, "sandlot-runner"))
        answer = reset(box)
        assert (answer["equal"], answer["prepared"]) == (True, False), answer
        assert box.run("cat /etc/which").stdout == b"one\n"
        prepare(box)
        assert lay(box, image_of(images, "two"))
        prepare(box)
        wait_until(lambda: len(named(box, "init")) == 2)
        answer = reset(box)
        assert (answer["equal"], answer["prepared"]) == (True, True), answer
        assert box.run("cat /etc/which").stdout == b"two\n"


def test_many_exchanges_leave_nothing(start: Box, images: Path) -> None:
    box = start()
    assert lay(box, image_of(images, "one"))
    assert box.ask("reset")["equal"]  # the first one opens what is kept open
    assert lay(box, image_of(images, "two"))
    before, mounts = descriptors(box), len(mounts_of(box))
    for number in range(10):
        assert lay(box, image_of(images, ("one", "two")[number % 2]))
        assert box.ask("reset")["equal"]
    assert lay(box, image_of(images, "two"))
    # The files of former roots are deleted beside this.
    wait_until(lambda: descriptors(box) <= before and len(mounts_of(box)) == mounts)


@NEEDS_RUNC
def test_in_a_pod_the_image_s_commands_are_root_s(container: Start, enter: Enter, images: Path) -> None:
    pod = container(user=NOT_ROOT)
    box = enter(pod)
    runner = box.runner()
    assert runner.run("id -u").stdout == b"1234\n"
    assert lay(box, image_of(images, "one"))
    tell(runner)
    seen = runner.run("id -u; cat /etc/which /etc/resolv.conf; ls /dev/extra; echo dirt > /etc/which")
    assert seen.stdout == b"0\none\nnameserver 192.0.2.53\none\n"
    assert runner.run("ls /work /volume")["exit_code"] != 0
    written = [path.read_text() for path in (pod.directory / "store").glob("*/upper/etc/which")]
    assert written == ["dirt\n"]
    answer = box.ask("reset")
    assert answer["equal"], answer["proof"]
    assert box.run("id -u; cat /etc/which").stdout == b"0\none\n"
