"""User code as root inside the sandbox looks for what is outside: it sees, signals and changes nothing there."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.executor.conftest import Make
from tests.executor.driver import Command, Driver
from tests.executor.plants import PEEK
from tests.executor.processes import processes_below

pytestmark = pytest.mark.root

SECRET = "sandlot-test-secret-7c1f"


def test_only_init_and_oneself_are_seen(any_box: Driver) -> None:
    ended = any_box.run(
        ["python3", "-c", "import os; print(sorted(int(n) for n in os.listdir('/proc') if n.isdigit()))"]
    )
    pids = [int(part) for part in ended.stdout.strip(b"[]\n").split(b",")]
    assert pids[0] == 1
    assert len(pids) == 2


def test_nothing_of_the_outside_is_in_proc(any_box: Driver) -> None:
    """No environment, command line, descriptor or memory of executor and runner can be read."""
    outside = processes_below(any_box.process.pid)
    told = seen_of_init(any_box)
    refused = dict.fromkeys(("environ", "mem", "maps", "cwd", "root", "exe", "auxv", "stack", "io"), "13")
    assert told == {**refused, "syscall": "1", "fd": "[]", "cmdline": "b'init'"}
    assert outside


def seen_of_init(any_box: Driver) -> dict[str, str]:
    """What code can read of the one process beside its own: by part, or the error's number."""
    script = """
import os
for name in os.listdir('/proc'):
    if not name.isdigit() or int(name) == os.getpid():
        continue
    for part in ('environ', 'mem', 'fd', 'cmdline', 'maps', 'cwd', 'root', 'exe', 'auxv', 'stack', 'syscall', 'io'):
        path = f'/proc/{name}/{part}'
        try:
            if part == 'fd':
                print(name, part, [os.readlink(f'{path}/{fd}') for fd in os.listdir(path)])
            elif part in ('cwd', 'root', 'exe'):
                print(name, part, os.readlink(path))
            else:
                data = open(path, 'rb').read(65536).strip(b'\\0')
                print(name, part, data)
        except OSError as error:
            print(name, part, error.errno)
"""
    ended = any_box.run(["python3", "-c", script])
    assert ended["exit_code"] == 0, ended.stderr
    told: dict[str, str] = {}
    for line in ended.stdout.decode().splitlines():
        pid, part, value = line.split(" ", 2)
        assert pid == "1"
        told[part] = value
    return told


def test_the_moment_between_birth_and_exec_shows_nothing(any_box: Driver) -> None:
    """A watcher inside tries to read each newborn process while it still shares the runner's memory."""
    watcher = """
import os, sys, time
print('up', flush=True)
seen = set()
end = time.monotonic() + 3
found = 0
while time.monotonic() < end:
    for name in os.listdir('/proc'):
        if not name.isdigit() or name == '1' or int(name) == os.getpid():
            continue
        try:
            exe = os.readlink(f'/proc/{name}/exe')
        except OSError:
            continue
        if 'python' in exe:
            found += 1
            print('LEAK', exe, os.listdir(f'/proc/{name}/fd'), flush=True)
print('watched', flush=True)
"""
    command = any_box.runner().start(["python3", "-u", "-c", watcher])
    assert isinstance(command, Command)
    command.read_until(b"up")
    other = any_box.runner()
    for _ in range(300):
        assert other.run(["/bin/true"])["exit_code"] == 0
    ended = command.wait()
    assert b"watched" in ended.stdout
    assert b"LEAK" not in ended.stdout


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_no_signal_reaches_outside(any_box: Driver, number: int) -> None:
    victim = subprocess.Popen(["sleep", "600"])
    try:
        pids = [
            victim.pid,
            any_box.process.pid,
            any_box.process.pid,
            os.getpid(),
            *processes_below(any_box.process.pid),
        ]
        script = f"""
import os
for pid in {pids!r} + [1, -1]:
    try:
        os.kill(pid, {int(number)})
    except OSError:
        pass
"""
        any_box.run(["python3", "-c", script])
        assert victim.poll() is None
        assert any_box.run("echo usable").stdout == b"usable\n"
    finally:
        victim.kill()
        victim.wait()


def test_no_ptrace_of_init(any_box: Driver) -> None:
    script = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for request in (16, 0x4206):
    print(libc.ptrace(request, 1, 0, 0), ctypes.get_errno())
"""
    ended = any_box.run(["python3", "-c", script])
    assert ended.stdout == b"-1 1\n-1 1\n"


def test_what_tells_of_the_machine_is_masked(any_box: Driver) -> None:
    ended = any_box.run(["python3", "-c", PEEK])
    assert (ended.stdout, ended["exit_code"]) == (b"", 0), ended.stderr


def test_the_machines_own_files_are_hidden(make: Make, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: real namespaces, mounts and cgroups")
    (tmp_path / "secret").write_text(SECRET)
    hidden = Path(tempfile.mkdtemp(prefix="sandlot-test-", dir="/opt"))
    (hidden / "secret").write_text(SECRET)
    try:
        box = make(root={"lower": ["/"], "mask": [str(hidden), "/no/such", "/etc/shadow"]})
        ended = box.run(f"ls -A /tmp /run /var/tmp; ls {hidden} {tmp_path} /etc/shadow")
        assert ended.stdout == b"/run:\n\n/tmp:\n\n/var/tmp:\n"
        assert ended.stderr.count(b"No such file") == 3
        assert box.run(f"mkdir {hidden}; ls -A {hidden}").stdout == b""
    finally:
        (hidden / "secret").unlink()
        hidden.rmdir()
    assert not hidden.exists()


def test_what_is_written_inside_is_not_outside(any_box: Driver) -> None:
    any_box.run(
        "echo x > /sandlot-test-x; echo x > /usr/sandlot-test-x; echo x >> /etc/hostname; rm -rf /usr/games"
    )
    assert not Path("/sandlot-test-x").exists()
    assert not Path("/usr/sandlot-test-x").exists()
    assert Path("/usr/games").exists()


def test_a_module_planted_inside_is_not_run_outside(box: Driver) -> None:
    """After the change of root, Python's own paths lead into the sandbox: nothing may be imported from there."""
    import encodings
    import json

    evil = "import os; os.system('touch /pwned'); raise SystemExit"
    for module in (encodings.__file__, json.__file__):
        box.run(f'mkdir -p {os.path.dirname(module)}; echo "{evil}" > {module}')
    box.run('for m in pwd grp errno locale stringprep traceback idna; do echo "' + evil + '" > /$m.py; done')
    box.ask("apply", hostname="h\u00e9")
    box.runner().start("true", user="no-such")
    for _ in range(3):
        box.ask("alive")
        box.run("true", user="nobody")
    assert box.run("ls /pwned")["exit_code"] == 2


def test_sysv_memory_of_the_machine_is_not_seen(box: Driver) -> None:
    made = subprocess.run(["ipcmk", "-M", "1000"], capture_output=True, text=True, check=True)
    number = made.stdout.split()[-1]
    try:
        assert box.run("ipcs -m | grep -c 0x; true").stdout == b"0\n"
    finally:
        subprocess.run(["ipcrm", "-m", number], check=True)


def test_the_keyring_of_the_machine_is_not_seen(box: Driver) -> None:
    script = "import ctypes; print(ctypes.CDLL(None, use_errno=True).syscall(250, 0, -4, 0, 0, 0))"
    assert box.run(["python3", "-c", script]).stdout == b"-1\n"
