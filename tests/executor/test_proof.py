"""The proof of a reset sees what was left behind: one thing of each kind is planted, and its cleaning left out."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.executor.conftest import Box
from tests.executor.driver import Driver
from tests.executor.plants import IPC_PLANTS, PEEK, PLANTS, TOUCH
from tests.executor.test_leaks import groups_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces, mounts and cgroups"),
]

ALL = PLANTS | IPC_PLANTS
# A capability in a file's attributes.
ATTRIBUTE = "import os, struct; os.setxattr('/etc/passwd', 'security.capability', struct.pack('<5I', 0x2000000, 1, 0, 0, 0))"
# Every mount point and file that is one, as code sees them, that can be written to.
WRITABLE = """
import os
for line in open('/proc/self/mountinfo'):
    left, right = line.split(' - ')
    point, kind = left.split()[4], right.split()[0]
    if 'ro' in left.split()[5].split(',') or kind in ('proc', 'devpts'): continue
    path = f'{point}/planted' if os.path.isdir(point) else point
    if os.path.exists(path) and not os.path.isfile(path): continue
    try:
        with open(path, 'a') as file: file.write('planted')
    except OSError: continue
    print(path)
"""


@pytest.mark.parametrize("kind", ALL)
def test_what_is_planted_is_seen_where_it_is_not_cleaned(start: Box, kind: str) -> None:
    step, command = ALL[kind]
    box = start(step)
    planted = box.run(command)
    assert planted["exit_code"] == 0, planted.stderr
    answer = box.ask("reset")
    assert not answer["equal"], answer


@pytest.mark.parametrize("step", ["root", "ipc", "hostname"])
def test_it_is_the_plant_that_is_seen(start: Box, step: str) -> None:
    box = start(step)
    box.run("true")
    answer = box.ask("reset")
    assert answer["equal"], answer


def test_an_attribute_of_a_file_is_seen(start: Box) -> None:
    box = start("root")
    planted = box.run(["python3", "-c", ATTRIBUTE])
    assert planted["exit_code"] == 0, planted.stderr
    proof = box.ask("reset")["proof"]
    assert (proof["files_equal"], proof["differences"][-1]) == (False, "file upper/etc/passwd: is new"), proof


def test_a_mount_is_seen(start: Box) -> None:
    """Code cannot mount: somebody else has to."""
    box = start("root")
    subprocess.run(
        ["nsenter", "-t", str(box.process.pid), "-m", "--", "mount", "-t", "tmpfs", "planted", "/root"],
        check=True,
    )
    proof = box.ask("reset")["proof"]
    assert not proof["mounts_equal"]
    assert proof["differences"][-1].startswith("mount /root: is new: / /root rw,relatime tmpfs planted "), (
        proof
    )


def test_a_hostname_is_seen(start: Box) -> None:
    box = start("hostname")
    subprocess.run(
        ["nsenter", "-t", str(box.ready["init_pid"]), "-u", "--", "hostname", "planted"], check=True
    )
    proof = box.ask("reset")["proof"]
    assert (proof["hostname_equal"], proof["differences"]) == (False, ["hostname planted"])


def test_a_control_group_is_seen(box: Driver) -> None:
    """Code cannot make one that lasts: it sees none."""
    for path in groups_of(box):
        (path / f"r{box.process.pid}-planted").mkdir()
    answer = box.ask("reset")
    named = [f"control group r{box.process.pid}-planted"]
    proof = answer["proof"]
    assert (answer["equal"], proof["groups"], proof["differences"]) == (False, 1, named), answer


def test_what_differs_is_named_in_bounds(start: Box) -> None:
    """By code's own choice of names, and of how many."""
    box = start("root")
    planted = box.run(
        "cd /dev/shm; for n in $(seq 300); do touch $n; done; printf x > \"$(printf 'a\\377\\n')\""
    )
    assert planted["exit_code"] == 0, planted.stderr
    answer = box.ask("reset")
    named = answer["proof"]["differences"]
    assert not answer["equal"]
    assert len(named) == 10
    assert all(len(text) <= 200 and text.isascii() for text in named)
    assert "file dev/shm/1: is new" in named


def test_all_of_it_is_gone_after_a_reset(start: Box) -> None:
    box = start()
    files = "cat /etc/hosts /etc/resolv.conf /etc/hostname /etc/passwd /etc/group"
    look = f"{files}; find / /etc /dev /root -maxdepth 1 -printf '%p %M %U:%G\\n' | grep -v ^/proc | sort"
    fresh = box.run(look).stdout
    for kind, (_, command) in ALL.items():
        assert box.run(command)["exit_code"] == 0, kind
    box.run(["python3", "-c", ATTRIBUTE])
    answer = box.ask("reset")
    assert answer["equal"], answer
    assert box.run(look).stdout == fresh


def test_nothing_can_be_written_that_a_reset_does_not_take_away(start: Box) -> None:
    box = start()
    first = box.run(["python3", "-c", WRITABLE]).stdout.split()
    assert b"//planted" in first
    assert b"/dev/shm/planted" in first
    assert box.ask("reset")["equal"]
    for path in first:
        assert b"planted" not in box.run(["cat", os.fsdecode(path)]).stdout, path


def test_what_no_reset_cleans_cannot_be_touched(start: Box) -> None:
    box = start()
    ended = box.run(["python3", "-c", TOUCH])
    assert (ended.stdout, ended["exit_code"]) == (b"", 0), ended.stderr


def test_what_tells_of_the_machine_is_masked(start: Box) -> None:
    ended = start().run(["python3", "-c", PEEK])
    assert (ended.stdout, ended["exit_code"]) == (b"", 0), ended.stderr
