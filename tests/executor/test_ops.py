"""What a command is given, and what is told of its end."""

from __future__ import annotations

import os
import re
import signal
import time
from functools import partial

import pytest
from sandlot_sidecar.executor import fork_exec, users, wire

from tests.executor.conftest import Make
from tests.executor.driver import Command, Driver

pytestmark = pytest.mark.root


def test_output_and_exit_code(any_box: Driver) -> None:
    ended = any_box.run("echo out; echo err >&2; exit 7")
    assert (ended.stdout, ended.stderr, ended["exit_code"], ended["signal"]) == (b"out\n", b"err\n", 7, None)


def test_argv_is_not_a_shell(any_box: Driver) -> None:
    assert any_box.run(["echo", "$HOME; ls"]).stdout == b"$HOME; ls\n"


def test_death_by_signal(any_box: Driver) -> None:
    ended = any_box.run("kill -TERM $$")
    assert (ended["exit_code"], ended["signal"]) == (143, signal.SIGTERM)


@pytest.mark.parametrize(
    ("command", "code"),
    [(["no-such-program"], 127), (["/etc/hostname"], 126), (["/usr"], 126), (["/no/such"], 127)],
)
def test_what_cannot_be_run(box: Driver, command: list[str], code: int) -> None:
    runner = box.runner()
    answer = runner.start(command)
    assert isinstance(answer, dict)
    assert answer["exit_code"] == code
    assert command[0] in answer["message"]
    assert runner.run("echo still here").stdout == b"still here\n"


TERMINAL = {"cols": 80, "rows": 24}


@pytest.mark.parametrize(
    ("command", "code"), [("no-such-program", 127), ("/etc/hostname", 126), ("/no/such", 127)]
)
def test_what_cannot_be_run_in_a_terminal(box: Driver, command: str, code: int) -> None:
    runner = box.runner()
    for _ in range(20):  # the child's report may come in pieces, but does not each time
        answer = runner.start([command], pty=TERMINAL)
        assert isinstance(answer, dict)
        assert (answer["exit_code"], command in answer["message"]) == (code, True)


def test_a_terminal_in_a_directory_that_is_none(any_box: Driver) -> None:
    runner = any_box.runner()
    for _ in range(20):
        answer = runner.start("true", pty=TERMINAL, cwd="/no/such")
        assert isinstance(answer, dict)
        assert (answer["failed"], answer["field"]) == ("start_failed", "cwd")


def test_a_report_of_a_failed_start_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.read
    monkeypatch.setattr(fork_exec.os, "read", lambda fd, size: read(fd, min(size, 3)))
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    start = partial(fork_exec.start, env={"PATH": "/bin"}, fds=[null] * 3, user=users.resolve(0))
    try:
        with pytest.raises(FileNotFoundError) as failed:
            start(["true"], cwd="/no/such")
        assert failed.value.filename == "/no/such"
        with pytest.raises(FileNotFoundError) as failed:
            start(["no-such-program"], cwd="/")
        assert failed.value.filename == "no-such-program"
    finally:
        os.close(null)


def test_env_cwd_and_home(any_box: Driver) -> None:
    ended = any_box.run("echo $SEED $HOME; pwd", env={"SEED": "1"}, cwd="/usr/bin")
    assert ended.stdout == b"1 /root\n/usr/bin\n"


def test_only_the_given_environment(box: Driver) -> None:
    ended = box.run(["env"], env={"A": "b"})
    names = {line.split(b"=")[0] for line in ended.stdout.splitlines()}
    assert names == {b"A", b"PATH", b"HOME"}


@pytest.mark.parametrize(
    ("run", "field"),
    [({"user": "nobody-such"}, "user"), ({"cwd": "/no/such"}, "cwd"), ({"cwd": "/etc/passwd"}, "cwd")],
)
def test_a_start_that_is_the_callers_fault(any_box: Driver, run: dict[str, str], field: str) -> None:
    answer = any_box.runner().start("true", **run)
    assert isinstance(answer, dict)
    assert (answer["failed"], answer["field"]) == ("start_failed", field)


@pytest.mark.parametrize("user", ["nobody", 65534, "65534"])
def test_user(box: Driver, user: str | int) -> None:
    ended = box.run("id -un; id -u; id -g; cat /proc/self/status | grep CapEff", user=user)
    assert ended.stdout.split() == [b"nobody", b"65534", b"65534", b"CapEff:", b"0000000000000000"]


def test_a_uid_without_a_name(box: Driver) -> None:
    assert box.run("id -u; id -g; echo $HOME", user=12345).stdout == b"12345\n0\n/\n"


def test_groups_of_a_user(box: Driver) -> None:
    box.run("groupadd -g 4321 crew; useradd -m -G crew worker")
    ended = box.run("id -Gn; echo $HOME; touch ~/mine", user="worker")
    assert b"crew" in ended.stdout.split()
    assert b"/home/worker" in ended.stdout
    assert ended["exit_code"] == 0


def test_standard_input_and_its_end(any_box: Driver) -> None:
    command = any_box.runner().start(["cat"], stdin=True)
    assert isinstance(command, Command)
    assert command.stdin is not None
    os.write(command.stdin, b"hello")
    assert command.read_until(b"hello") == b"hello"
    os.close(command.stdin)
    command.stdin = None
    assert command.wait()["exit_code"] == 0


def test_a_script_longer_than_an_argument_may_be(any_box: Driver) -> None:
    script = "read line\n" + "true\n" * 40_000 + "echo $line done"
    assert len(script) > 131_072
    command = any_box.runner().start(script, stdin=True)
    assert isinstance(command, Command)
    assert command.stdin is not None
    os.write(command.stdin, b"in\n")
    assert command.wait().stdout == b"in done\n"


def test_output_that_is_no_text(any_box: Driver) -> None:
    assert any_box.run(r"printf '\377\000\376'").stdout == b"\xff\x00\xfe"


def test_it_ends_though_a_child_holds_the_pipes(any_box: Driver) -> None:
    began = time.monotonic()
    ended = any_box.run("sleep 333 & echo started")
    assert time.monotonic() - began < 60
    assert ended.stdout == b"started\n"
    assert ended["leftover"] == 1


def test_a_terminal(any_box: Driver) -> None:
    command = any_box.runner().start(["bash", "--norc"], pty={"cols": 91, "rows": 17})
    assert isinstance(command, Command)
    terminal = command._outputs[0]
    os.write(terminal, b"stty size; tty; ps -o stat= -p $$; exit 3\n")
    ended = command.wait()
    assert b"17 91" in ended.stdout
    assert b"/dev/pts/0" in ended.stdout
    assert re.search(rb"\bSN?s\b", ended.stdout)  # a session's leader; N where the tests are run with nice
    assert ended["exit_code"] == 3


def test_an_interrupt_through_the_terminal(any_box: Driver) -> None:
    command = any_box.runner().start(["cat"], pty={"cols": 80, "rows": 24})
    assert isinstance(command, Command)
    os.write(command._outputs[0], b"one\n")
    # Once from the terminal's echo, once from cat, which runs by then.
    command.read_until(b"one\r\none\r\n")
    os.write(command._outputs[0], b"\x03")
    assert command.wait()["signal"] == signal.SIGINT


def test_a_terminal_for_another_user(box: Driver) -> None:
    command = box.runner().start(
        ["sh", "-c", "echo hi > $(tty); id -u"], pty={"cols": 80, "rows": 24}, user="nobody"
    )
    assert isinstance(command, Command)
    ended = command.wait()
    assert ended["exit_code"] == 0
    assert b"hi\r\n65534" in ended.stdout


def test_usage_is_told(box: Driver) -> None:
    ended = box.run(["python3", "-c", "x = bytearray(60_000_000)\nfor i in range(2_000_000): pass"])
    assert 0.02 < ended["cpu"] < 10
    assert 60_000_000 < ended["peak_memory"] < 120_000_000


def test_processor_time_of_children_counts(box: Driver) -> None:
    busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    ended = box.run(f"sh -c '{busy}' & wait")
    assert ended["cpu"] > 0.03


def test_the_peak_is_not_the_runners(box: Driver) -> None:
    runner = box.runner()
    runner.run("true")
    assert runner.run(["true"])["peak_memory"] < 4_000_000


def test_a_runner_refuses_a_second_command(box: Driver) -> None:
    runner = box.runner()
    command = runner.start(["sleep", "60"])
    assert isinstance(command, Command)
    assert runner.ask({"run": {"argv": ["true"]}})["failed"] == "busy"
    assert runner.ask({"kill": True})["killed"] == 1
    assert command.wait()["signal"] == signal.SIGKILL


def test_bad_environment_and_command(any_box: Driver) -> None:
    for command in ("a\0b", ["echo", "\0"], []):
        runner = any_box.runner()
        answer = runner.start(command)
        assert isinstance(answer, dict)
        assert answer["failed"] == "start_failed"


def test_a_number_without_end_in_passwd_is_nobody_s(box: Driver) -> None:
    box.run("echo a:x:$(head -c 5000 /dev/zero | tr '\\0' 9):0::/: >> /etc/passwd")
    runner = box.runner()
    for user in ("a", "b", "9" * 5000, "root:" + "9" * 5000):
        answer = runner.start("true", user=user)
        assert isinstance(answer, dict), user
        assert (answer["failed"], answer["field"]) == ("start_failed", "group" if ":" in user else "user")
    assert runner.run("echo still here").stdout == b"still here\n"


def test_a_lookup_that_fails_in_any_way_is_the_op_s_own(make: Make) -> None:
    first = (
        "from sandlot_sidecar.executor import users\n"
        "before = users.resolve\n"
        "def broken(user):\n"
        "    if user == 'broken': raise OverflowError('too much')\n"
        "    return before(user)\n"
        "users.resolve = broken\n"
    )
    runner = make(first=first).runner()
    answer = runner.start("true", user="broken")
    assert isinstance(answer, dict)
    assert (answer["failed"], answer["field"]) == ("start_failed", "user")
    assert runner.run("echo still here").stdout == b"still here\n"


def test_what_a_sealed_python_can_still_do() -> None:
    assert wire.loads(wire.dumps({"text": "\udcff"})) == {"text": "\udcff"}
