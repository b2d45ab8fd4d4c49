"""Every descendant of an op dies with it, and nobody else's."""

from __future__ import annotations

import os
import signal
import time

import pytest
from sandlot_sidecar.executor import wire

from tests.executor.driver import Command, Driver
from tests.waiting import wait_until

pytestmark = pytest.mark.root

ESCAPE = """
python3 - <<'END'
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("hidden", flush=True)
        os.execvp("sleep", ["sleep", "7777"])
    os._exit(0)
os.wait()
END
(setsid nohup sleep 7778 >/dev/null 2>&1 &)
sleep 7779 &
echo ready
wait
"""


def sleepers(box: Driver, *seconds: int) -> list[str]:
    ended = box.run("for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; echo; done 2>/dev/null")
    lines = ended.stdout.decode().splitlines()
    return [line for line in lines if any(line.startswith(f"sleep {n}") for n in seconds)]


def wait_for_sleeper(box: Driver, seconds: int) -> None:
    """A shell that has begun a job in the background goes on before the job's program is there."""
    wait_until(lambda: len(sleepers(box, seconds)) == 1, what=f"sleep {seconds} runs")


def test_a_kill_finds_all_descendants(any_box: Driver) -> None:
    runner = any_box.runner()
    command = runner.start(ESCAPE)
    assert isinstance(command, Command)
    command.read_until(b"hidden")  # written by an orphan: the shell's "ready" may come before it
    command.read_until(b"ready")
    wire.send_packet(runner.sock, {"kill": True})
    messages = [runner.receive()[0], runner.receive()[0]]
    command.close()
    assert sum(message.get("killed", 0) for message in messages) >= 4
    assert any(message.get("ended", {}).get("signal") == signal.SIGKILL for message in messages)
    assert sleepers(any_box, 7777, 7778, 7779) == []


def test_background_processes_of_others_live_on(any_box: Driver) -> None:
    first, second = any_box.runner(), any_box.runner()
    ended = first.run("setsid nohup sleep 6661 >/dev/null 2>&1 & echo ok")
    assert ended["leftover"] == 1
    wait_for_sleeper(any_box, 6661)
    command = second.start("sleep 6662 & echo up; sleep 6663")
    assert isinstance(command, Command)
    command.read_until(b"up")
    assert second.ask({"kill": True})["killed"] >= 2
    assert command.wait()["signal"] == signal.SIGKILL
    assert len(sleepers(any_box, 6661, 6662, 6663)) == 1
    assert first.ask({"check": True})["leftover"] == 1
    first.close()
    assert len(sleepers(any_box, 6661)) == 1


def test_a_signal_to_one_and_to_all(any_box: Driver) -> None:
    runner = any_box.runner()
    script = "trap 'echo main; exit 5' USR1; (trap 'echo child; exit 0' USR1; echo up; sleep 60 & wait) & wait; wait"
    command = runner.start(script)
    assert isinstance(command, Command)
    command.read_until(b"up")
    assert runner.ask({"signal": int(signal.SIGUSR1), "tree": True})["signalled"] >= 2
    ended = command.wait()
    assert b"main" in ended.stdout
    assert ended["exit_code"] == 5

    command = runner.start("sleep 61 & echo up; wait")
    assert isinstance(command, Command)
    command.read_until(b"up")
    assert runner.ask({"signal": int(signal.SIGTERM), "tree": False})["signalled"] == 1
    assert command.wait()["signal"] == signal.SIGTERM
    wait_for_sleeper(any_box, 61)


def test_a_signal_to_a_command_that_could_not_start_hits_nobody(any_box: Driver) -> None:
    runner, other = any_box.runner(), any_box.runner()
    runner.run("true", mark="same")
    # With the mark of the op before, by which it would be found.
    command = other.start("echo up; sleep 60", mark="same")
    assert isinstance(command, Command)
    command.read_until(b"up")
    refused = runner.start("true", cwd="/no/such")
    assert isinstance(refused, dict)
    assert (refused["failed"], refused["field"]) == ("start_failed", "cwd")
    for tree in (True, False):
        assert runner.ask({"signal": int(signal.SIGKILL), "tree": tree}) == {"signalled": 0}
    assert other.ask({"kill": True})["killed"] >= 1
    command.close()


def test_a_fork_bomb_is_stopped(box: Driver) -> None:
    runner = box.runner()
    command = runner.start("exec 2>&1; bomb() { bomb | bomb & }; bomb; sleep 60")
    assert isinstance(command, Command)
    command.read_until(b"fork")  # what a shell says of one that was refused: the limit is reached
    began = time.monotonic()
    killed = runner.ask({"kill": True})["killed"]
    took = time.monotonic() - began
    ended = command.wait()
    assert killed > 10
    assert took < 20
    assert ended["pids_hit"]
    assert runner.ask({"check": True})["leftover"] == 0
    assert box.run("echo usable").stdout == b"usable\n"
    assert runner.run("echo usable").stdout == b"usable\n"


def test_a_limit_of_processes_for_one_op(box: Driver) -> None:
    runner = box.runner()
    many = "for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done; wait"
    ended = runner.run(["python3", "-c", MANY], limits={"pids": 5})
    assert b"refused" in ended.stdout
    assert ended["pids_hit"]
    assert not runner.run(many.replace("60", "0"))["pids_hit"]


MANY = """
import os, time
try:
    for _ in range(20):
        if os.fork() == 0:
            time.sleep(60)
except BlockingIOError:
    print("refused", flush=True)
os.killpg(0, 9)
"""


def test_processor_seconds(box: Driver) -> None:
    ended = box.run("while :; do :; done", limits={"cpu_seconds": 1})
    assert ended["signal"] == signal.SIGXCPU
    assert ended["cpu"] < 3


def test_init_cannot_be_killed_from_inside(any_box: Driver) -> None:
    box = any_box
    ended = box.run(
        "kill -9 1; kill -TERM 1; kill -INT 1; kill -HUP 1; kill -USR1 1; kill -CHLD 1; ls /proc/1/stat"
    )
    assert ended["exit_code"] == 0
    assert box.ask("alive")["alive"]
    assert not box.events


def test_kill_everything_hurts_only_oneself(any_box: Driver) -> None:
    ended = any_box.run("(sleep 555 &) ; kill -9 -1")
    assert ended["exit_code"] == 0  # the kernel spares who sends it to all
    assert any_box.run("echo usable").stdout == b"usable\n"


def test_a_lost_init_is_replaced(box: Driver) -> None:
    box.write("/app/kept", b"x", parents=True)
    os.kill(box.ready["init_pid"], signal.SIGKILL)
    event = box.wait_event()
    assert event == {"event": "init_lost", "files_kept": True}
    assert box.run("cat /app/kept; hostname; ls /proc/1/stat").stdout == b"xbox\n/proc/1/stat\n"
