"""Which shell runs a command that is a string: bash, sh in an image without it, or the one that was asked for."""

from __future__ import annotations

import pytest

from tests.executor.driver import Driver, RunnerChannel

pytestmark = pytest.mark.root

WHICH = "echo ${BASH_VERSION:+bash}; echo $0"


def which(runner: RunnerChannel, **run: str) -> bytes:
    """The first line says bash or nothing, the second the path."""
    return runner.run(WHICH, **run).stdout


@pytest.mark.parametrize(
    ("command", "stdout", "exit_code"),
    [
        (r"printf %s $'a\tb'", b"a\tb", 0),
        ("f() { echo exported; }; export -f f; exec bash -c f", b"exported\n", 0),
        ("(exec -a renamed sleep 0); (exec -a renamed bash -c 'echo $0')", b"renamed\n", 0),
        (r"printf '\x41'", b"A", 0),
        ("a=(one two three); echo ${#a[@]} ${a[-1]}", b"3 three\n", 0),
        ("[[ abc == a* && 10 -gt 9 ]] && echo yes", b"yes\n", 0),
        ("set -o pipefail; false | true", b"", 1),
        ("diff <(echo a) <(echo a) && echo same", b"same\n", 0),
        ('s=word; echo "${s^^} ${s:1:2} ${s//o/0}"', b"WORD or w0rd\n", 0),
    ],
)
def test_a_string_is_bash_s_where_the_image_has_it(
    any_box: Driver, command: str, stdout: bytes, exit_code: int
) -> None:
    ended = any_box.run(command)
    assert (ended.stdout, ended.stderr, ended["exit_code"]) == (stdout, b"", exit_code)


def test_the_shell_that_is_asked_for(box: Driver) -> None:
    runner = box.runner()
    assert which(runner) == which(runner, shell_kind="bash") == b"bash\n/bin/bash\n"
    assert which(runner, shell_kind="sh") == b"\n/bin/sh\n"
    box.run("ln -s bash /usr/bin/another; ln -s /bin/sh /opt/plain")
    assert which(runner, shell_kind="/usr/bin/another") == b"bash\n/usr/bin/another\n"
    assert which(runner, shell_kind="/opt/plain") == b"\n/opt/plain\n"
    answer = runner.start("true", shell_kind="/opt/none")
    assert isinstance(answer, dict)
    assert (answer["exit_code"], answer["message"]) == (127, "/opt/none: command not found")


def test_bash_may_go_and_come_while_a_runner_lives(box: Driver) -> None:
    """Both are seen by the very next command, whichever runner it gets."""
    one, two = box.runner(), box.runner()
    assert which(one) == which(two) == b"bash\n/bin/bash\n"
    one.run("mv $(realpath /bin/bash) /opt/kept")
    for runner in (one, two):
        assert which(runner) == b"\n/bin/sh\n"
        answer = runner.start("true", shell_kind="bash")
        assert isinstance(answer, dict)
        assert (answer["failed"], answer["field"]) == ("start_failed", "shell")
        assert "no bash" in answer["message"]
    one.run("mv /opt/kept /usr/local/bin/bash")
    for runner in (one, two):
        assert which(runner) == b"bash\n/usr/local/bin/bash\n"
    two.run("chmod 644 /usr/local/bin/bash")
    for runner in (one, two):
        assert which(runner) == b"\n/bin/sh\n"


def test_a_long_command_is_bash_s_too(box: Driver) -> None:
    """It does not fit into an argument and is handed over as a file."""
    ended = box.run(f"[[ -n $BASH_VERSION ]] && a=({'x ' * 100_000}) && echo ${{#a[@]}}")
    assert ended.stdout == b"100000\n"


def test_a_shell_knows_its_own_path(box: Driver) -> None:
    assert box.run("env | grep ^SHELL=").stdout == b"SHELL=/bin/bash\n"
    assert box.run("env | grep ^SHELL=", shell_kind="sh").stdout == b"SHELL=/bin/sh\n"
    assert box.run("echo $SHELL", env={"SHELL": "/mine"}).stdout == b"/mine\n"
