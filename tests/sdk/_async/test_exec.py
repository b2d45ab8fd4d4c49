"""exec: what comes back, and what raises."""

from __future__ import annotations

import pytest
from sandlot import AsyncSandbox, CommandFailed, OpConflict, StartFailed, Stderr, Stdout, Verdict


async def test_a_result_has_output_code_and_usage(box: AsyncSandbox) -> None:
    result = await box.exec("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert result.verdict == Verdict.EXITED == "exited"
    assert (result.stdout_bytes, result.stderr_bytes) == (4, 4)
    assert not result.ok
    assert result.usage.wall > 0
    assert len(result.op_id) == 32


async def test_a_list_is_given_to_the_program_unchanged(box: AsyncSandbox) -> None:
    words = ["printf", "%s|", "two words", "$HOME", "it's", ""]
    assert (await box.exec(words)).stdout == "two words|$HOME|it's||"


async def test_environment_and_directory(box: AsyncSandbox) -> None:
    result = await box.exec('echo "$COLOUR"; pwd', env={"COLOUR": "grün ☃"}, cwd="/tmp")
    assert result.stdout == "grün ☃\n/tmp\n"


@pytest.mark.parametrize("data", ["text ☃\n", b"bytes\n", b"\xff\x00binary", b"x" * 5_000_000])
async def test_stdin(box: AsyncSandbox, data: str | bytes) -> None:
    raw = data.encode() if isinstance(data, str) else data
    result = await box.exec("sha256sum | cut -c1-64", stdin=data)
    import hashlib

    assert result.stdout.strip() == hashlib.sha256(raw).hexdigest()


async def test_a_timeout_is_a_result_with_the_output_so_far(box: AsyncSandbox) -> None:
    result = await box.exec("echo begun; sleep 60", timeout=10)
    assert result.verdict == "timeout"
    assert result.stdout == "begun\n"


async def test_death_by_signal_is_a_result(box: AsyncSandbox) -> None:
    result = await box.exec("kill -SEGV $$")
    assert (result.verdict, result.signal, result.exit_code) == ("signaled", 11, 139)


async def test_check_raises_with_the_result(box: AsyncSandbox) -> None:
    with pytest.raises(CommandFailed, match="exit code 7: oh no") as caught:
        await box.exec("echo oh no >&2; exit 7", check=True)
    assert caught.value.result.exit_code == 7
    assert (await box.exec("true", check=True)).ok


async def test_a_command_that_cannot_start_raises(box: AsyncSandbox) -> None:
    with pytest.raises(StartFailed, match="user"):
        await box.exec("true", user="nobody-here")


async def test_the_same_op_id_runs_once(box: AsyncSandbox) -> None:
    first = await box.exec("echo x >> /tmp/once-$$; echo $$", op_id="once.1")
    again = await box.exec("echo x >> /tmp/once-$$; echo $$", op_id="once.1")
    assert first.stdout == again.stdout


async def test_bad_arguments_name_themselves(box: AsyncSandbox) -> None:
    with pytest.raises(ValueError, match="op_id"):
        await box.exec("true", op_id="a b")
    with pytest.raises(ValueError, match="timeout"):
        await box.exec("true", timeout=-1)


async def test_a_stream_has_every_byte_and_ends_with_exit(box: AsyncSandbox) -> None:
    out = err = ""
    last = None
    async with await box.exec("echo a; echo b >&2; printf 'c☃'; exit 4", stream=True) as events:
        async for event in events:
            last = event
            if isinstance(event, Stdout):
                out += event.text
            elif isinstance(event, Stderr):
                err += event.text
    assert (out, err) == ("a\nc☃", "b\n")
    assert events.exit is last
    assert events.exit is not None
    assert (events.exit.exit_code, events.exit.verdict) == (4, "exited")


async def test_a_streamed_command_reads_stdin(box: AsyncSandbox) -> None:
    text = ""
    async for event in await box.exec("cat", stdin="through", stream=True):
        if isinstance(event, Stdout):
            text += event.text
    assert text == "through"


async def test_a_failed_stream_raises_with_check(box: AsyncSandbox) -> None:
    with pytest.raises(CommandFailed):
        async for _ in await box.exec("exit 1", stream=True, check=True):
            pass


async def test_leaving_a_stream_ends_the_command(box: AsyncSandbox) -> None:
    async with await box.exec("echo $$; sleep 60", stream=True) as events:
        async for event in events:
            if isinstance(event, Stdout):
                break
    process = await box.attach(events.op_id)
    assert (await process.wait()).verdict == "killed"


async def test_an_op_id_of_another_command_is_refused(box: AsyncSandbox) -> None:
    async with await box.start("sleep 60", op_id="taken"):
        with pytest.raises(OpConflict):
            await box.start("sleep 61", op_id="taken")


async def test_a_line_runs_in_bash_or_in_the_shell_that_is_asked_for(box: AsyncSandbox) -> None:
    which = "echo ${BASH_VERSION:+bash}"
    assert (await box.exec(which)).stdout == "bash\n"
    assert (await box.exec(which, shell="sh")).stdout == "\n"
    assert (await box.exec(which, shell="/bin/bash")).stdout == "bash\n"
    process = await box.start(which, shell="sh", stdin=False)
    assert (await process.wait()).stdout == "\n"
