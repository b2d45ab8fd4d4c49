"""The log of a start command, which keeps the end of both streams, and the pipes that it is filled from."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandlot_contract.frames import STDERR, STDOUT
from sandlot_sidecar.server import output
from sandlot_sidecar.server.startcommand import TailLog

TURNS = st.lists(st.tuples(st.sampled_from("oes"), st.binary(max_size=40_000)), max_size=60)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=30)
@given(turns=TURNS, repeated=st.integers(1, 3), tail=st.integers(0, 2 << 20))
def test_the_tail_log_keeps_the_end_of_both_streams(
    turns: list[tuple[str, bytes]], repeated: int, tail: int
) -> None:
    log, written = TailLog(), {"stdout": b"", "stderr": b"", "all": b""}
    for kind, data in turns * repeated:
        log.append(ord(kind), data)
        if kind != "s":
            written["stdout" if kind == "o" else "stderr"] += data
            written["all"] += data
    kept = log.text("all", tail=1 << 20)
    assert kept == written["all"][-(1 << 20) :]
    assert log.truncated <= (len(written["all"]) > 1 << 20)
    for kind, stream in ((STDOUT, "stdout"), (STDERR, "stderr")):
        text = log.text(stream, tail=1 << 20)
        assert written[stream].endswith(text)
        assert b"".join(log.output(kind))[-(1 << 20) :] == text
        assert log.text(stream, tail=tail) == text[len(text) - min(tail, len(text)) :]
    assert (log.stdout_bytes, log.stderr_bytes) == (len(written["stdout"]), len(written["stderr"]))


# A process of its own, since tracemalloc takes ten times as long.
BYTE_BY_BYTE = """
import re
from pathlib import Path
from sandlot_contract.frames import STDERR, STDOUT
from sandlot_sidecar.server.startcommand import TailLog

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10

log = TailLog()
before = peak()
for _ in range(700_000):
    log.append(STDOUT, b"o")
    log.append(STDERR, b"e")
kept = sum(len(piece) for kind in (STDOUT, STDERR) for piece in log.output(kind))
print(peak() - before, kept, log.truncated, log.text("all", tail=4).decode())
"""


def test_the_tail_log_needs_little_more_memory_than_it_keeps() -> None:
    """Byte by byte, now on one stream and now on the other."""
    done = subprocess.run([sys.executable, "-c", BYTE_BY_BYTE], check=True, capture_output=True, text=True)
    grown, kept, truncated, text = done.stdout.split()
    assert int(grown) < 4 << 20
    assert (truncated, text) == ("True", "oeoe")
    assert 1 << 20 <= int(kept) < 2 << 20


@pytest.mark.parametrize(("packets", "kept"), [(200, 200), (250, 200)])
def test_what_stays_in_a_pipe_is_told(packets: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe of packets gives one of them a read; the end of an op reads so often and no more."""
    monkeypatch.setattr(output, "DRAIN_READS", 200)
    log = TailLog()
    pipes: Any = output.OpOutput(SimpleNamespace(), log, changed=lambda: None)  # pyright: ignore[reportArgumentType]
    pipes._out, write = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
    try:
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 20)
        for _ in range(packets):
            os.write(write, b"packet")
        pipes.drain()
        assert len(log.text("stdout", tail=1 << 20)) == 6 * kept
        assert log.truncated == (kept < packets)
    finally:
        os.close(write)
        os.close(pipes._out)
