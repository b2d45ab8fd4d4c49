"""A reset makes the sandbox equal to a fresh one, whatever was done to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executor.conftest import Make
from tests.executor.driver import Command, Driver, RunnerChannel
from tests.waiting import wait_until

pytestmark = pytest.mark.root

DIRT = """
mkdir -p /app && echo dirt > /app/file
echo dirt >> /etc/passwd
rm -rf /etc/hostname /usr/games
mkdir -p /var/spool/cron/crontabs /root/.config
echo '* * * * * root true' > /var/spool/cron/crontabs/root
echo 'export DIRT=1' >> /root/.profile
echo dirt > /tmp/x; echo dirt > /var/tmp/x; echo dirt > /run/x; echo dirt > /dev/shm/x
ln -sf /etc/passwd /dev/extra
rm -f /dev/null
python3 - <<'END'
import ctypes
libc = ctypes.CDLL(None)
assert libc.shmget(4711, 100000, 0o1666) >= 0
assert libc.semget(4712, 3, 0o1666) >= 0
assert libc.msgget(4713, 0o1666) >= 0
END
python3 -c "open('/dev/mqueue/dirt', 'w')"
nohup setsid sleep 5555 >/dev/null 2>&1 &
python3 -c "import socket,time; s=socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); time.sleep(5555)" &
echo done
"""
LOOK = """
cat /etc/passwd | grep -c dirt
ls -A /tmp /var/tmp /run /dev/shm /app 2>&1
ls /etc/hostname /var/spool/cron/crontabs /root/.profile /dev/extra /dev/null 2>&1
ipcs -a; ls -A /dev/mqueue; set -- /proc/[0-9]*; echo $#
cat /etc/hosts /etc/passwd | md5sum
"""


def test_deliberate_dirt_is_gone(any_box: Driver) -> None:
    fresh = any_box.run(LOOK)
    dirty = any_box.run(DIRT)
    assert dirty.stdout.endswith(b"done\n"), dirty.stderr
    assert any_box.run(LOOK).stdout != fresh.stdout
    answer = any_box.ask("reset")
    assert answer["proof"] == {
        "processes": [],
        "upper_entries": 0,
        "files_equal": True,
        "mounts_equal": True,
        "network_equal": True,
        "ipc_entries": 0,
        "hostname_equal": True,
        "groups": 0,
        "differences": [],
    }
    assert answer["equal"]
    assert any_box.run(LOOK).stdout == fresh.stdout


def test_the_channels_of_before_are_dead(any_box: Driver) -> None:
    idle, busy = any_box.runner(), any_box.runner()
    assert idle.run("true")["exit_code"] == 0
    command = busy.start(["sleep", "999"])
    assert isinstance(command, Command)
    assert any_box.ask("reset")["equal"]
    for runner in (idle, busy):
        with pytest.raises((EOFError, OSError)):
            runner.ask({"check": True})
    command.close()


def test_a_first_runner_is_there_with_the_proof(any_box: Driver) -> None:
    any_box.run("echo dirt > /dirt; (sleep 777 &)")
    for _ in range(2):
        answer, fd = any_box.ask_fd("reset", runner=True)
        assert answer["equal"], answer
        channel = RunnerChannel(fd)
        assert channel.run("test ! -e /dirt")["exit_code"] == 0
        channel.close()


def test_many_resets_leave_nothing(box: Driver) -> None:
    assert box.ask("reset")["equal"]  # the first one opens what is kept open
    before = descriptors(box)
    for number in range(30):
        assert box.run(f"echo {number} > /x; (sleep 777 &)")["exit_code"] == 0
        answer = box.ask("reset")
        assert answer["equal"]
    wait_until(lambda: descriptors(box) <= before)


def descriptors(box: Driver) -> int:
    """Once an answer is there: a request closes its own only after it has answered."""
    box.ask("alive")
    return len(os.listdir(f"/proc/{box.process.pid}/fd"))


def test_the_network_of_a_claim(box: Driver) -> None:
    devices = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort | tr '\\n' ' '; ls /sys/class/net"
    network = "readlink /proc/self/ns/net"
    full = box.run(network).stdout
    box.write("/app/kept", b"kept", parents=True)
    runner = box.runner()
    box.ask("apply", network="none")
    with pytest.raises((EOFError, OSError)):
        runner.ask({"check": True})
    assert box.run(network).stdout != full
    assert box.run(devices).stdout.split() == [b"lo", b"lo"]
    assert box.run("cat /proc/1/net/dev | wc -l").stdout == b"3\n"
    assert box.run("ping -c1 -W1 127.0.0.1 >/dev/null 2>&1 || cat /sys/class/net/lo/flags").stdout in (
        b"",
        b"0x9\n",
    )
    assert box.read("/app/kept") == b"kept"
    refused = "import socket\ntry: socket.create_connection(('1.1.1.1', 53), 2)\nexcept OSError as e: print(e.errno)"
    assert box.run(["python3", "-c", refused]).stdout == b"101\n"
    answer = box.ask("reset")
    assert answer["equal"]
    assert box.run(devices).stdout.split() == [b"lo", b"lo"]
    box.ask("apply", network="full")
    assert box.run(network).stdout == full
    assert box.ask("reset", network="none")["equal"]
    assert box.ask("reset", network="full")["equal"]
    assert box.run(network).stdout == full


def test_no_network_for_an_ordinary_user(any_box: Driver) -> None:
    any_box.ask("apply", network="none", hostname="claimed")
    ended = any_box.run("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; hostname")
    assert ended.stdout == b"lo\nclaimed\n"


@pytest.mark.parametrize("network", ["full", "none"])
def test_a_connection_into_the_sandbox(any_box: Driver, network: str) -> None:
    any_box.ask("apply", network=network)
    serve = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        "c, _ = s.accept(); c.sendall(c.recv(100).upper())"
    )
    command = any_box.runner().start(["python3", "-c", serve])
    assert isinstance(command, Command)
    port = int(command.read_until(b"\n"))
    _, fd = any_box.ask_fd("connect", port=port)
    os.write(fd, b"hello")
    assert os.read(fd, 100) == b"HELLO"
    os.close(fd)
    assert command.wait()["exit_code"] == 0


def test_a_big_layer_is_dropped(box: Driver) -> None:
    box.run("head -c 50000000 /dev/zero > /big; mkdir /many; cd /many; touch $(seq 1 5000)")
    answer = box.ask("reset")
    assert answer["equal"]


@pytest.fixture
def masked(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory of the machine that is hidden from the sandbox: another stack's state, say."""
    top = Path(tempfile.mkdtemp(prefix="sandlot-test-", dir=request.param))
    (top / "state").mkdir()
    (top / "state" / "key").write_text("secret-key")
    os.chmod(top, 0o711)
    yield top / "state"
    shutil.rmtree(top, ignore_errors=True)


@pytest.mark.parametrize("masked", ["/opt", "/tmp"], indirect=True)
def test_it_is_equal_after_what_was_hidden_has_gone(make: Make, masked: Path) -> None:
    """Another stack on the machine ends whenever it wants."""
    box = make(root={"lower": ["/"], "mask": [str(masked)], "disk": 64 << 20})
    shutil.rmtree(masked.parent)
    answer = box.ask("reset")
    assert answer["equal"], answer["proof"]


@pytest.mark.parametrize("masked", ["/opt", "/tmp"], indirect=True)
def test_what_is_to_be_hidden_is_so_when_it_comes_later(make: Make, masked: Path) -> None:
    shutil.rmtree(masked.parent)
    box = make(root={"lower": ["/"], "mask": [str(masked)], "disk": 64 << 20})
    assert masked.parent.name.encode() not in box.run(["ls", "-A", str(masked.parents[1])]).stdout
    masked.mkdir(parents=True)
    (masked / "key").write_text("secret-key")
    answer = box.ask("reset")
    assert answer["equal"], answer["proof"]
    assert box.run(["cat", str(masked / "key")])["exit_code"] == 1


@pytest.mark.parametrize("masked", ["/opt"], indirect=True)
def test_the_same_where_something_is_mounted_above_it(make: Make, masked: Path) -> None:
    """A layer above the image cannot hide there: something is mounted over it."""
    disk, point = masked.parent / "disk", masked.parent / "point"
    (disk / "state").mkdir(parents=True)
    point.mkdir()
    subprocess.run(["mount", "--bind", disk, point], check=True)
    try:
        box = make(root={"lower": ["/"], "mask": [str(point / "state")], "disk": 64 << 20})
    finally:
        subprocess.run(["umount", point], check=True)
    (disk / "state").rmdir()
    answer = box.ask("reset")
    assert answer["equal"], answer["proof"]


def test_nothing_of_the_machine_is_in_a_directory_that_is_fresh(make: Make) -> None:
    with tempfile.TemporaryDirectory(prefix="sandlot-test-") as hidden:
        box = make(root={"lower": ["/"], "mask": [hidden], "disk": 64 << 20})
        assert box.run("ls -A /tmp /var/tmp /run").stdout.split() == [b"/run:", b"/tmp:", b"/var/tmp:"]
