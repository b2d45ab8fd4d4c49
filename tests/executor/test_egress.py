"""The programs of a network policy on a real cgroup: those that were there are replaced, and gone with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_sidecar.executor.bpf import attached_programs
from sandlot_sidecar.executor.egress import PROGRAM_TYPES, Egress
from sandlot_sidecar.server.egress.programs import program

from tests.executor.conftest import needs_root

pytestmark = needs_root

ANY = (0, 0, 0, 0)


@pytest.fixture
def group() -> Iterator[int]:
    for top in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
        if (top / "cgroup.procs").exists():
            break
    else:
        pytest.skip("needs control groups of version 2")
    path = top / f"sandlot-test-egress-{os.getpid()}"
    path.mkdir()
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)
        path.rmdir()


def code(
    *, allow: bool, rules: list[tuple[int, int, int, int]], proxied: dict[int, int] | None = None
) -> dict[int, bytes]:
    return {place: program(place, allow=allow, rules=rules, proxied=proxied or {}) for place in PROGRAM_TYPES}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_verifier_takes_the_largest_policy(group: int):
    held = Egress(group)
    before = descriptors()
    for low, high in ((0, 0), (1, 65535)):
        rules = [((10 << 24) + (n << 8), 24, low, high) for n in range(1024)]
        for allow in (True, False):
            held.set(code(allow=allow, rules=rules, proxied={80: 40000, 443: 1}))
            assert descriptors() == before + 3
    held.clear()
    assert descriptors() == before


def test_nothing_held_back_needs_no_program(group: int):
    held = Egress(group)
    before = descriptors()
    held.set(code(allow=True, rules=[]))
    assert descriptors() == before + 3
    held.set({})
    assert descriptors() == before


def test_a_policy_that_was_not_taken_leaves_what_was(group: int):
    held = Egress(group)
    before = descriptors()
    # To the second of three the kernel says no: an instruction that there is not.
    with pytest.raises(OSError, match="load a BPF program"):
        held.set(code(allow=True, rules=[ANY]) | {10: b"\xff" * 8})
    assert descriptors() == before


def test_an_earlier_sidecar_s_programs_are_replaced_too(group: int):
    def on() -> list[int]:
        return [len(attached_programs(group, place)) for place in PROGRAM_TYPES]

    before = descriptors()
    for wanted in (code(allow=False, rules=[ANY]), {}):
        killed = Egress(group)
        killed.set(code(allow=True, rules=[]))
        killed.close()
        assert on() == [1, 1, 1]
        held = Egress(group)
        held.set(wanted)
        assert on() == [int(bool(wanted))] * 3
        held.clear()
        assert (on(), descriptors()) == ([0, 0, 0], before)


def test_each_program_is_whole_instructions():
    for each in code(allow=True, rules=[(1, 32, 1, 2), ANY]).values():
        assert len(each) % 8 == 0
