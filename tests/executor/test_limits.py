"""Memory, processes and disk: the op that takes too much is struck, the sandbox goes on."""

from __future__ import annotations

import errno
import os

import pytest

from tests.executor.conftest import MEMORY, Make
from tests.executor.disk import space
from tests.executor.driver import Command, Driver, Refused

pytestmark = pytest.mark.root

HOG = ["python3", "-c", "x = []\nwhile True: x.append(bytearray(4_000_000))"]


def test_a_memory_hog_is_told_as_such(box: Driver) -> None:
    runner = box.runner()
    ended = runner.run(HOG)
    assert ended["oom"]
    assert ended["signal"] == 9
    assert MEMORY * 0.8 < ended["peak_memory"] <= MEMORY
    again = runner.run("echo usable")
    assert again.stdout == b"usable\n"
    assert not again["oom"]


def test_the_whole_op_ends_when_its_child_is_struck(box: Driver) -> None:
    ended = box.run(["sh", "-c", "sleep 444 & python3 -c 'x = bytearray(1 << 30)'; echo survived; sleep 600"])
    assert ended["oom"]
    assert ended["signal"] == 9  # the shell too, though only its child was struck: it never gets to its end
    assert ended["leftover"] == 0


def test_a_neighbour_is_spared(box: Driver) -> None:
    neighbour = box.runner().start("read line; echo $line", stdin=True)
    assert isinstance(neighbour, Command)
    assert box.run(HOG)["oom"]
    assert neighbour.stdin is not None
    os.write(neighbour.stdin, b"alive\n")
    ended = neighbour.wait()
    assert ended.stdout == b"alive\n"
    assert not ended["oom"]


def test_two_hogs_together(box: Driver) -> None:
    first = box.runner().start(HOG)
    second = box.runner().start(HOG)
    assert isinstance(first, Command)
    assert isinstance(second, Command)
    assert [first.wait()["oom"], second.wait()["oom"]] == [True, True]
    assert box.run("echo usable").stdout == b"usable\n"


def test_a_memory_limit_for_one_op(box: Driver) -> None:
    runner = box.runner()
    use = ["python3", "-c", "x = bytearray(100_000_000); print(len(x))"]
    assert runner.run(use, limits={"memory": 50_000_000})["oom"]
    assert runner.run(use).stdout == b"100000000\n"


def test_a_full_disk(any_box: Driver) -> None:
    box = any_box
    ended = box.run("head -c 100000000 /dev/zero > /app.bin; echo code $?; stat -c %s /app.bin")
    assert b"No space left" in ended.stderr
    assert b"code 1" in ended.stdout
    with pytest.raises(OSError, match="No space left") as error:
        box.write("/more", bytes(10_000_000))
    assert error.value.errno == errno.ENOSPC
    size, free = space(box)
    assert free < size * 0.05
    assert box.run("rm /app.bin; echo x > /app.txt; cat /app.txt").stdout == b"x\n"


def test_the_disk_is_below_the_memory(make: Make) -> None:
    box = make(root={"lower": ["/"], "disk": 10 * MEMORY})
    assert any("disk" in note for note in box.ready["notes"])
    ended = box.run("head -c 1G /dev/zero > /big; echo $?")
    assert ended.stdout == b"1\n"
    assert not ended["oom"]
    assert box.run(["python3", "-c", "print(len(bytearray(40_000_000)))"]).stdout == b"40000000\n"


def test_limits_of_a_claim(box: Driver) -> None:
    runner = box.runner()
    answer = box.ask("apply", limits={"memory": MEMORY // 2, "pids": 20, "disk": 10_000_000, "cpu": 0.5})
    assert answer["notes"] == []
    assert runner.run(["python3", "-c", "x = bytearray(200_000_000)"])["oom"]
    assert box.run("head -c 20000000 /dev/zero > /big; echo $?").stdout == b"1\n"
    assert 9_000_000 < space(box)[0] < 11_000_000


def test_half_a_processor(make: Make) -> None:
    box = make(limits={"cpu": 0.5})
    busy = "import time\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass"
    ended = box.run(["python3", "-c", busy])
    assert ended["cpu"] < 2.4  # half of three seconds, and the start of Python


def test_shared_memory_is_bounded(box: Driver) -> None:
    ended = box.run("head -c 1G /dev/zero > /dev/shm/x; echo $?")
    assert ended.stdout == b"1\n"
    assert not ended["oom"]


def test_bad_limits(box: Driver) -> None:
    for name in ("memory", "pids", "cpu", "disk"):
        with pytest.raises(Refused) as error:
            box.ask("apply", limits={name: -1})
        assert (error.value.code, error.value.field) == ("bad_request", f"limits.{name}")
