# This file is auto-generated from tests/sdk/_async/test_exec.py by tools/async_to_sync.py: do not change it.
"""exec: what comes back, and what raises."""

from __future__ import annotations

import pytest
from sandlot import CommandFailed, OpConflict, Sandbox, StartFailed, Stderr, Stdout, Verdict


def test_a_result_has_output_code_and_usage(box: Sandbox) -> None:
    result = box.exec("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert result.verdict == Verdict.EXITED == "exited"
    assert (result.stdout_bytes, result.stderr_bytes) == (4, 4)
    assert not result.ok
    assert result.usage.wall > 0
    assert len(result.op_id) == 32


def test_a_list_is_given_to_the_program_unchanged(box: Sandbox) -> None:
    words = ["printf", "%s|", "two words", "$HOME", "it's", ""]
    assert (box.exec(words)).stdout == "two words|$HOME|it's||"


def test_environment_and_directory(box: Sandbox) -> None:
    result = box.exec('echo "$COLOUR"; pwd', env={"COLOUR": "grün ☃"}, cwd="/tmp")
    assert result.stdout == "grün ☃\n/tmp\n"


@pytest.mark.parametrize("data", ["text ☃\n", b"bytes\n", b"\xff\x00binary", b"x" * 5_000_000])
def test_stdin(box: Sandbox, data: str | bytes) -> None:
    raw = data.encode() if isinstance(data, str) else data
    result = box.exec("sha256sum | cut -c1-64", stdin=data)
    import hashlib

    assert result.stdout.strip() == hashlib.sha256(raw).hexdigest()


def test_a_timeout_is_a_result_with_the_output_so_far(box: Sandbox) -> None:
    result = box.exec("echo begun; sleep 60", timeout=10)
    assert result.verdict == "timeout"
    assert result.stdout == "begun\n"


def test_death_by_signal_is_a_result(box: Sandbox) -> None:
    result = box.exec("kill -SEGV $$")
    assert (result.verdict, result.signal, result.exit_code) == ("signaled", 11, 139)


def test_check_raises_with_the_result(box: Sandbox) -> None:
    with pytest.raises(CommandFailed, match="exit code 7: oh no") as caught:
        box.exec("echo oh no >&2; exit 7", check=True)
    assert caught.value.result.exit_code == 7
    assert (box.exec("true", check=True)).ok


def test_a_command_that_cannot_start_raises(box: Sandbox) -> None:
    with pytest.raises(StartFailed, match="user"):
        box.exec("true", user="nobody-here")


def test_the_same_op_id_runs_once(box: Sandbox) -> None:
    first = box.exec("echo x >> /tmp/once-$$; echo $$", op_id="once.1")
    again = box.exec("echo x >> /tmp/once-$$; echo $$", op_id="once.1")
    assert first.stdout == again.stdout


def test_bad_arguments_name_themselves(box: Sandbox) -> None:
    with pytest.raises(ValueError, match="op_id"):
        box.exec("true", op_id="a b")
    with pytest.raises(ValueError, match="timeout"):
        box.exec("true", timeout=-1)


def test_a_stream_has_every_byte_and_ends_with_exit(box: Sandbox) -> None:
    out = err = ""
    last = None
    with box.exec("echo a; echo b >&2; printf 'c☃'; exit 4", stream=True) as events:
        for event in events:
            last = event
            if isinstance(event, Stdout):
                out += event.text
            elif isinstance(event, Stderr):
                err += event.text
    assert (out, err) == ("a\nc☃", "b\n")
    assert events.exit is last
    assert events.exit is not None
    assert (events.exit.exit_code, events.exit.verdict) == (4, "exited")


def test_a_streamed_command_reads_stdin(box: Sandbox) -> None:
    text = ""
    for event in box.exec("cat", stdin="through", stream=True):
        if isinstance(event, Stdout):
            text += event.text
    assert text == "through"


def test_a_failed_stream_raises_with_check(box: Sandbox) -> None:
    with pytest.raises(CommandFailed):
        for _ in box.exec("exit 1", stream=True, check=True):
            pass


def test_leaving_a_stream_ends_the_command(box: Sandbox) -> None:
    with box.exec("echo $$; sleep 60", stream=True) as events:
        for event in events:
            if isinstance(event, Stdout):
                break
    process = box.attach(events.op_id)
    assert (process.wait()).verdict == "killed"


def test_an_op_id_of_another_command_is_refused(box: Sandbox) -> None:
    with box.start("sleep 60", op_id="taken"):
        with pytest.raises(OpConflict):
            box.start("sleep 61", op_id="taken")


def test_a_line_runs_in_bash_or_in_the_shell_that_is_asked_for(box: Sandbox) -> None:
    which = "echo ${BASH_VERSION:+bash}"
    assert (box.exec(which)).stdout == "bash\n"
    assert (box.exec(which, shell="sh")).stdout == "\n"
    assert (box.exec(which, shell="/bin/bash")).stdout == "bash\n"
    process = box.start(which, shell="sh", stdin=False)
    assert (process.wait()).stdout == "\n"
