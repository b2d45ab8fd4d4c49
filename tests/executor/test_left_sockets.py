"""Sockets that are left under gVisor, told from those of the sidecar, whose processes go on while they are read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from sandlot_sidecar.executor import left_sockets

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


class Tables:
    """A home whose tables of UDP sockets are those given, one after the other."""

    def __init__(self, *tables: list[int]) -> None:
        self.proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        self._tables = list(tables)

    def read(self, name: str) -> bytes:
        inodes = self._tables.pop(0) if name.endswith("/udp") else []
        lines = [f" 1: 0100007F:{inode:04X} 0:0 07 0:0 0:0 0 0 0 {inode}\n" for inode in inodes]
        return (HEAD + "".join(lines)).encode()


@pytest.fixture
def tables() -> Iterator[Any]:
    made: list[Tables] = []

    def make(*tables: list[int]) -> Tables:
        made.append(Tables(*tables))
        return made[-1]

    yield make
    for each in made:
        os.close(each.proc)


def test_one_that_a_name_query_closes_meanwhile_is_not_left(tables: Any) -> None:
    assert left_sockets.left(tables([7], []), before={}) == []


def test_one_that_stays_is_left(tables: Any) -> None:
    assert left_sockets.left(tables([7, 8, 9], [7, 9, 10]), before={"9": "udp"}) == ["udp 0100007F:0007"]
