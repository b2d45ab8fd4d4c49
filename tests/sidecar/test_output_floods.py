"""Output without end, or faster than its reader: memory is bounded, and what is kept is told."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.sidecar.calls import usable
from tests.sidecar.processes import resident
from tests.sidecar.support import Sidecar, parse_frames, payload

pytestmark = pytest.mark.root


def spilled(box: Sidecar) -> int:
    """Bytes in unlinked files that the server holds open."""
    total = 0
    for entry in Path(f"/proc/{box.pid}/fd").iterdir():
        try:
            if "(deleted)" in os.readlink(entry) and box.directory in os.readlink(entry):
                total += entry.stat().st_size
        except OSError:
            continue
    return total


async def test_a_flood_of_output_has_bounded_memory(box: Sidecar) -> None:
    await box.exec("true")
    before = resident(box.pid)
    document = await box.op("head -c 100000000 /dev/zero | tr '\\0' y", wait=60)
    assert (document["verdict"], document["exit_code"]) == ("exited", 0)
    assert document["stdout_bytes"] == 100_000_000
    assert document["truncated"] is True
    assert resident(box.pid) - before < 16 << 20
    assert spilled(box) <= 65 << 20
    await usable(box)


async def test_exec_carries_the_first_and_the_last_of_a_flood(box: Sidecar) -> None:
    answer = await box.exec("echo begin; head -c 40000000 /dev/zero | tr '\\0' y; echo end")
    assert answer["stdout_bytes"] == 40_000_010
    assert answer["truncated"] is True
    assert len(answer["stdout"]) == 16 << 20
    assert answer["stdout"].startswith("begin\ny")
    assert answer["stdout"].endswith("yend\n")


async def test_output_limit_of_one_op(box: Sidecar) -> None:
    answer = await box.call(
        "POST", "/v1/ops", json={"command": "seq 1 100000; echo err >&2", "output_limit": 1000}
    )
    frames = parse_frames(answer.content)
    end = json.loads(frames[-1][1])
    assert len(payload(frames, "o")) + len(payload(frames, "e")) == 1000
    assert (end["truncated"], end["stderr_bytes"]) == (True, 4)
    assert end["stdout_bytes"] == sum(len(f"{number}\n") for number in range(1, 100001))


async def test_an_output_limit_without_end_is_refused_by_name(box: Sidecar) -> None:
    answer = await box.call("POST", "/v1/ops", json={"command": "true", "output_limit": (1 << 30) + 1})
    assert (answer.status_code, answer.json()["field"]) == (400, "output_limit")
    assert answer.json()["message"] == f"output_limit must be from 0 to {1 << 30}"


async def test_a_slow_reader_gets_all_of_it(box: Sidecar) -> None:
    received = bytearray()
    async with box.stream("POST", "/v1/ops", json={"command": "seq 1 300000"}) as answer:
        async for part in answer.aiter_raw(65536):
            received += part
            await asyncio.sleep(0.001)
    lines = payload(parse_frames(bytes(received)), "o").split()
    assert (len(lines), lines[-1]) == (300_000, b"300000")


@pytest.mark.slow
async def test_a_reason_is_told_after_output_of_any_length(box: Sidecar) -> None:
    flood = "printf 'no newline' >&2; head -c 1000 /dev/zero >&2; exec sleep 60"
    document = await box.op(flood, output_limit=100, timeout=15, wait=50)
    assert document["verdict"] == "timeout"
    told = (await box.call("GET", f"/v1/ops/{document['op_id']}/output?stream=stderr")).content
    assert told.startswith(b"no newline")
    assert told.endswith(b"\0\nsandlot: reached its time limit of 15 s\n")
