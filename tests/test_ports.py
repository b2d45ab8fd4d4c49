"""No two processes with tests are given the same port or address."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.ports import address, free_port, free_ports

# All ports of its block, but for those at which a program of the machine listens.
SHOW = "from tests.ports import *; print(address(300), *(free_port() for _ in range(200)))"


def test_another_process_has_others() -> None:
    root = Path(__file__).parents[1]
    there, *ports = subprocess.check_output([sys.executable, "-c", SHOW], cwd=root, text=True).split()
    assert there != address(300)
    assert there.endswith(".1.44")
    assert len(ports) == 200
    assert {str(free_port()) for _ in range(200)}.isdisjoint(ports)


def test_they_are_in_a_row_and_below_those_that_the_kernel_gives_away() -> None:
    first, second, third = free_ports(3)
    assert (second, third) == (first + 1, first + 2)
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert third < lowest
