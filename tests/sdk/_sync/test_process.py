# This file is auto-generated from tests/sdk/_async/test_process.py by tools/async_to_sync.py: do not change it.
"""Live processes: input, signals, waiting, leaving and coming back."""

from __future__ import annotations

import pytest
from sandlot import Exit, NotFound, Process, Sandbox, Stdout


def read_until(process: Process, text: str) -> str:
    """Output up to and with `text`."""
    seen = ""
    for event in process:
        if isinstance(event, Stdout):
            seen += event.text
            if text in seen:
                return seen
    raise AssertionError(f"ended without {text!r}: {seen!r}")


def test_a_conversation(box: Sandbox) -> None:
    script = "import sys\nfor line in sys.stdin: print(line.strip().upper(), flush=True)"
    with box.start(["python3", "-c", script]) as process:
        process.write("hello\n")
        assert read_until(process, "HELLO\n") == "HELLO\n"
        process.write(b"again\n")
        assert read_until(process, "AGAIN\n") == "AGAIN\n"
        process.close_stdin()
        result = process.wait()
    assert result.exit_code == 0
    assert result.stdout == "HELLO\nAGAIN\n"


def test_wait_alone_gives_the_whole_output(box: Sandbox) -> None:
    process = box.start("echo out; echo err >&2; exit 5", stdin=False)
    result = process.wait()
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 5)
    process.close()


def test_a_signal_reaches_the_command(box: Sandbox) -> None:
    with box.start("trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.05; done") as process:
        read_until(process, "ready")
        process.signal("TERM", tree=False)
        result = process.wait()
    assert result.exit_code == 9
    assert "caught" in result.stdout


def test_kill(box: Sandbox) -> None:
    process = box.start("sleep 60")
    assert process.poll() is None
    process.kill()
    assert (process.wait()).verdict == "killed"
    ended = process.poll()
    assert ended is not None
    process.close()


def test_leaving_the_block_ends_the_command(box: Sandbox) -> None:
    with box.start("sleep 60") as process:
        pass
    found = box.attach(process.op_id)
    assert (found.wait()).verdict == "killed"


def test_detach_and_come_back_where_the_output_stopped(box: Sandbox) -> None:
    process = box.start("echo first; read line; echo second $line", detach=True)
    assert read_until(process, "first\n") == "first\n"
    offset = process.offset
    op_id = process.detach()
    with box.attach(op_id, offset=offset) as again:
        again.write("and last\n")
        events = [event for event in again]
    assert "".join(event.text for event in events if isinstance(event, Stdout)) == "second and last\n"
    assert isinstance(events[-1], Exit)


def test_a_command_can_be_detached_after_its_start(box: Sandbox) -> None:
    with box.start("read line; echo got $line") as process:
        op_id = process.detach()
    with box.attach(op_id):
        pass  # the server knows that it is detached, so leaving it here does not end it
    with box.attach(op_id) as again:
        again.write("it\n")
        assert (again.wait()).stdout == "got it\n"


def test_what_was_never_started_cannot_be_detached(box: Sandbox) -> None:
    with box.start("true", stdin=False) as process:
        process.wait()
        assert process.detach() == process.op_id  # it has ended: nothing to leave, and no error


def test_attach_to_nothing(box: Sandbox) -> None:
    with pytest.raises(NotFound):
        box.attach("never-started")
