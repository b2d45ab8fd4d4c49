"""Measures what a refresh of each page costs the gateway with 10,000 records: `python -m tests.console.cost`, as root."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import httpx

from tests import plain_http
from tests.console.records import write_records
from tests.stack import Stack

RECORDS = 10_000
CALLS = 200
COMMANDS = 20
API = "/api/v1"
LIST = f"{API}/sandbox?overview=true&per_page=50"


def cpu_seconds(pid: int) -> float:
    """What the process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(client: httpx.Client, pid: int, path: str) -> None:
    """Print the bytes of a call and the CPU that it takes."""
    size = len(client.get(path).content)
    before = cpu_seconds(pid)
    for _ in range(CALLS):
        client.get(path)
    print(f"{(cpu_seconds(pid) - before) / CALLS * 1000:5.2f} ms  {size:7,} B  {path}", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="sandlot-") as directory:
        state_dir = Path(directory) / "state"
        write_records(state_dir, RECORDS)
        with (
            Stack(state_dir, options=("--pool", "warm=2", "--record-limit", "20000")) as stack,
            plain_http.client(base_url=stack.url, timeout=60) as client,
        ):
            assert stack.process is not None
            client.headers["Authorization"] = f"Bearer {stack.api_key}"
            one = client.post(f"{API}/sandbox", json={"docker_image": "host"}).json()["id"]
            for number in range(COMMANDS):
                client.post(f"/sbx/{one}/exec", json={"command": f"echo {number}"})
            for path in (
                f"{API}/stats?usage=false",
                f"{LIST}&page=1",
                f"{LIST}&page=200",
                f"{LIST}&verdict=oom&image=debian",
                f"{API}/pools",
                f"{API}/sandbox/{one}?observe=true",
                f"{API}/sandbox/{one}/commands?limit=100",
            ):
                measure(client, stack.process.pid, path)


if __name__ == "__main__":
    main()
