"""The page that runners share as they watch a sandbox's memory: what one reads while another writes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sandlot_sidecar.executor.group import Group
from sandlot_sidecar.executor.memory_watch import MemoryWatch


@pytest.fixture
def watch() -> Iterator[MemoryWatch]:
    made = MemoryWatch(Group(version=2, name="none", directories={}), cores=None)
    yield made
    made.close()


@contextmanager
def again_and_again(work: Callable[[], None]) -> Iterator[None]:
    """Another process has done it once, and does it without a pause, as long as the block lasts."""
    done, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os.write(tell, b"1")
            while True:
                work()
        finally:
            os._exit(1)
    try:
        os.close(tell)
        assert os.read(done, 1) == b"1"
        yield
    finally:
        os.close(done)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_look_while_another_process_writes_reads_whole_numbers(watch: MemoryWatch) -> None:
    with again_and_again(lambda: watch.limits_changed(cores=1)):
        for _ in range(50_000):
            watch.check(None)


def test_a_mark_is_found_while_others_are_written(watch: MemoryWatch) -> None:
    watch.mark(7)
    with again_and_again(lambda: watch.mark(8)):
        assert all(watch.take_mark(7) is (turn == 0) for turn in range(50_000))
    assert watch.take_mark(8)
    assert not watch.take_mark(8)
