"""File calls that need a process each have few at once, and all are answered."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from sandlot_sidecar.executor import wire
from sandlot_sidecar.executor.jobs import MOST_FILE_JOBS, Jobs
from sandlot_sidecar.executor.replies import Replies

from tests.waiting import SECONDS

ALL = MOST_FILE_JOBS + 3


class Executor:
    """Jobs that each end with a byte of a pipe, and the server's end of their answers."""

    def __init__(self) -> None:
        ours, self._server = socket.socketpair()
        self._ours, self._decoder = ours, wire.Decoder()
        self.jobs = Jobs(Replies(ours))
        self._read, self._write = os.pipe()

    def work(self) -> tuple[dict[str, Any], list[int]]:
        os.read(self._read, 1)
        return {}, []

    def release(self, count: int) -> None:
        os.write(self._write, b"x" * count)

    def answers(self, count: int) -> dict[int, bool]:
        """Serve until so many jobs are answered; return which succeeded."""
        found: dict[int, bool] = {}
        while len(found) < count:
            ready = select.select([self._server, *self.jobs.descriptors()], [], [], SECONDS)[0]
            assert ready, found
            for fd in ready:
                if isinstance(fd, int):
                    self.jobs.on_readable(fd)
                    continue
                for message, _ in self._decoder.receive(self._server) or ():
                    found[message["seq"]] = "ok" in message
        return found

    def close(self) -> None:
        self.jobs.end_all()
        self._ours.close()
        self._server.close()
        self._decoder.close()
        os.close(self._read)
        os.close(self._write)


@pytest.fixture
def executor(machine: object) -> Iterator[Executor]:
    made = Executor()
    yield made
    made.close()


def test_file_jobs_wait_for_one_another_and_a_kill_for_none(executor: Executor) -> None:
    for seq in range(ALL):
        executor.jobs.start_file_job(seq, executor.work)
    assert len(executor.jobs.descriptors()) == MOST_FILE_JOBS
    executor.jobs.start(ALL, lambda: ({}, []))
    assert executor.answers(1) == {ALL: True}
    executor.release(ALL)
    assert executor.answers(ALL) == dict.fromkeys(range(ALL), True)


def test_a_reset_answers_also_those_that_wait(executor: Executor) -> None:
    for seq in range(ALL):
        executor.jobs.start_file_job(seq, executor.work)
    executor.jobs.end_all()
    assert executor.answers(ALL) == dict.fromkeys(range(ALL), False)
    assert executor.jobs.descriptors() == []
    executor.jobs.start_file_job(ALL, lambda: ({}, []))
    assert executor.answers(1) == {ALL: True}
