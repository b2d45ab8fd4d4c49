"""A command reaches a limit: a result that says which, and a sandbox that lives on."""

from __future__ import annotations

from sandlot import Client, Sandbox

from tests.waiting import SECONDS


def test_time_memory_and_disk(client: Client) -> None:
    with Sandbox.create(client=client, memory="256MiB", disk="50MiB", pids=200) as box:
        box.exec("sleep 600 & echo background", timeout=SECONDS)
        late = box.exec("echo part; sleep 60", timeout=10)
        assert (late.verdict, late.stdout) == ("timeout", "part\n")
        eater = box.exec("python3 -c 'print(len(bytearray(1 << 30)))'", timeout=SECONDS)
        assert (eater.verdict, eater.stdout) == ("oom", "")
        full = box.exec("dd if=/dev/zero of=/fill bs=1M", timeout=SECONDS)
        assert full.verdict == "disk_full"
        box.exec("rm -f /fill", timeout=SECONDS)
        assert box.exec("echo usable", timeout=SECONDS).stdout == "usable\n"


def test_a_fork_bomb(client: Client) -> None:
    with Sandbox.create(client=client, memory="256MiB", pids=200) as box:
        bomb = box.exec("bomb() { bomb | bomb & }; bomb; sleep 8; exit 3", timeout=SECONDS)
        assert bomb.verdict in ("pids_limit", "timeout")
        assert box.exec("echo usable").stdout == "usable\n"
