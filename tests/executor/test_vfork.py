"""A program started by the machine code of `vfork`: what it is given, and what is told if it cannot start."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot_sidecar.executor import vfork

SHELL = [b"/bin/sh"]


class Started:
    """Starts programs with a file for their output."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._starter = vfork.Starter()

    def start(self, argv: Sequence[bytes], *, programs: Sequence[bytes] = SHELL, **given: Any) -> int:
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        out = os.open(self._out, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC)
        options = {"env": [b"PATH=/usr/bin:/bin"], "cwd": None, "terminal": False, **given}
        try:
            return self._starter.start(argv, programs=programs, fds=[null, out, out], **options)
        finally:
            os.close(null)
            os.close(out)

    def run(self, script: str, **given: Any) -> bytes:
        pid = self.start([b"sh", b"-c", script.encode()], **given)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        return self._out.read_bytes()


@pytest.fixture
def started(tmp_path: Path) -> Started:
    return Started(tmp_path / "out")


def test_arguments_environment_and_directory(started: Started) -> None:
    script = b'echo "$0|$1|$2|$A|$(pwd)"; env | wc -l'
    pid = started.start(
        [b"name", b"-c", script, b"zero", "ü ".encode(), b""], env=[b"A=b=c", b"PATH=/bin"], cwd=b"/usr"
    )
    assert os.waitpid(pid, 0)[1] == 0
    first, count = started._out.read_bytes().splitlines()
    assert first == "zero|ü ||b=c|/usr".encode()
    assert int(count) <= 5  # of a shell's own: PWD, OLDPWD, SHLVL, _


def test_it_has_only_its_three_descriptors(started: Started) -> None:
    other = os.open("/etc/hostname", os.O_RDONLY | os.O_CLOEXEC)
    try:
        assert b"/etc/hostname" not in started.run("ls -l /proc/$$/fd")
    finally:
        os.close(other)


def test_a_session_of_its_own(started: Started) -> None:
    number, session = started.run("echo $$; ps -o sid= -p $$").split()
    assert number == session


def test_its_signals_are_as_by_default(started: Started) -> None:
    """Python's own handler and the two signals that Python ignores."""
    kept = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        # A new starter: it has read the handlers once.
        status = dict(
            line.split(b":\t")
            for line in Started(started._out).run("cat /proc/self/status").splitlines()
            if b":\t" in line
        )
    finally:
        signal.signal(signal.SIGUSR1, kept)
    for name in (b"SigBlk", b"SigCgt"):
        assert int(status[name], 16) == 0, name
    ignored = int(status[b"SigIgn"], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1 | 1 << signal.SIGUSR1 - 1)


def test_the_first_program_that_can_run(started: Started, tmp_path: Path) -> None:
    programs = [b"/no/such", b"/etc/hostname/x", *SHELL]
    assert started.run("echo found", programs=programs) == b"found\n"


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ([b"/no/such"], errno.ENOENT),
        ([b"/no/such", b"/etc/hostname/x"], errno.ENOTDIR),
        ([b"/usr", b"/no/such"], errno.EACCES),
        ([b"/no/such", b"/usr", b"/no/other"], errno.EACCES),
    ],
)
def test_a_program_that_cannot_run(started: Started, programs: list[bytes], reason: int) -> None:
    with pytest.raises(OSError, match=re.escape(os.strerror(reason))) as failed:
        started.start([b"name"], programs=programs)
    assert failed.value.filename is None


def test_a_directory_that_is_none(started: Started) -> None:
    with pytest.raises(NotADirectoryError) as failed:
        started.start([b"sh"], cwd=b"/etc/hostname")
    assert failed.value.filename == "/etc/hostname"


def test_no_terminal_where_one_is_asked_for(started: Started) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.ENOTTY)) as failed:
        started.start([b"sh"], terminal=True)
    assert failed.value.filename is None


def test_more_than_exec_takes(started: Started) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.E2BIG)):
        started.start([b"sh", b"x" * (1 << 20)])


def test_a_null_byte(started: Started) -> None:
    for bad in ({"env": [b"A=\0"]}, {"cwd": b"/\0"}, {"programs": [b"/bin/s\0h"]}):
        with pytest.raises(ValueError, match="embedded null byte"):
            started.start([b"sh"], **bad)


@settings(max_examples=25)
@given(
    words=st.lists(st.binary(max_size=300).map(lambda part: part.replace(b"\0", b"")), max_size=30),
    values=st.lists(st.binary(max_size=300).map(lambda part: part.replace(b"\0", b"")), max_size=10),
)
def test_any_words_arrive(
    tmp_path_factory: pytest.TempPathFactory, words: list[bytes], values: list[bytes]
) -> None:
    started = Started(tmp_path_factory.mktemp("words") / "out")
    env = [b"V%d=%s" % (number, value) for number, value in enumerate(values)]
    script = b"tr '\\0' '\\n' < /proc/$$/environ | wc -c; cat /proc/$$/cmdline"
    pid = started.start([b"sh", b"-c", script, *words], env=env)
    assert os.waitpid(pid, 0)[1] == 0
    count, _, line = started._out.read_bytes().partition(b"\n")
    assert line == b"\0".join([b"sh", b"-c", script, *words, b""])
    assert int(count) == sum(len(each) + 1 for each in env)


def test_the_code_is_never_writable(started: Started) -> None:
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:code" in line]
    assert mapped
    assert {line.split()[1] for line in mapped} == {"r-xp"}


def test_an_unknown_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vfork, "CODES", {})
    with pytest.raises(OSError, match="no code for the machine"):
        vfork.Starter()
