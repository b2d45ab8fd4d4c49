"""What a command answers: its output, its end, what it took, and what it runs with."""

from __future__ import annotations

import pytest

from tests.sidecar.calls import processes_like
from tests.sidecar.support import Sidecar, tells_why
from tests.waiting import until

pytestmark = pytest.mark.root


async def test_exec_answers_primes_json(box: Sidecar) -> None:
    answer = await box.exec("echo out; echo err >&2; exit 3")
    assert (answer["stdout"], answer["stderr"], answer["exit_code"]) == ("out\n", "err\n", 3)
    assert answer["verdict"] == "exited"
    assert answer["signal"] is None
    assert (answer["stdout_bytes"], answer["stderr_bytes"], answer["truncated"]) == (4, 4, False)
    assert set(answer["usage"]) == {"queued", "wall", "cpu", "peak_memory"}
    hungry = await box.exec("python3 -c 'x = bytearray(30 << 20)'")
    assert 30 << 20 < hungry["usage"]["peak_memory"] < 100 << 20


async def test_a_string_runs_in_bash_or_in_the_shell_that_is_asked_for(box: Sidecar) -> None:
    script = "echo ${BASH_VERSION:+bash}"
    assert (await box.exec(script))["stdout"] == "bash\n"
    assert (await box.exec(script, shell="sh"))["stdout"] == "\n"
    assert (await box.exec(script, shell="/bin/bash"))["stdout"] == "bash\n"
    assert (await box.exec(["echo", "a b", "$HOME"]))["stdout"] == "a b $HOME\n"
    await box.op(script, wait=50, id="b")
    assert (await box.call("GET", "/v1/ops/b/output?stream=stdout")).text == "bash\n"
    for wrong in ("zsh", "./sh", "", 7):
        answer = await box.call("POST", "/v1/exec", json={"command": script, "shell": wrong})
        assert (answer.status_code, answer.json()["field"]) == (400, "shell")


@pytest.mark.parametrize(
    "command", ["sleep 333 & echo started", "nohup sleep 333 & echo started", "(sleep 333 &) ; echo started"]
)
async def test_ends_when_its_own_process_ends_although_a_child_holds_the_pipes(
    box: Sidecar, command: str
) -> None:
    answer = await box.exec(command)
    assert answer["stdout"] == "started\n"
    assert answer["exit_code"] == 0
    assert answer["usage"]["wall"] < 60
    await until(lambda: is_left(box))  # a moment after it has become its program


async def is_left(box: Sidecar) -> bool:
    return await processes_like(box, "sleep 333") == 1


@pytest.mark.slow
async def test_timeout_kills_every_descendant_and_returns_the_partial_output(box: Sidecar) -> None:
    await box.exec("sleep 777 & echo background of an earlier op")
    script = "setsid sleep 66 & (setsid sh -c 'sleep 66 & sleep 66' &) ; echo partial; sleep 66"
    response = await box.call("POST", "/v1/exec", json={"command": script, "timeout": 15})
    answer = response.json()
    assert (response.status_code, response.headers["X-Sandlot-Verdict"]) == (408, "timeout")
    assert answer["verdict"] == "timeout"
    assert answer["stdout"] == "partial\n"
    assert answer["exit_code"] == 137
    tells_why(answer, "reached its time limit of 15 s")
    assert await processes_like(box, "sleep 66") == 0
    assert await processes_like(box, "sleep 777") == 1


async def test_exit_codes_are_those_of_a_shell(box: Sidecar) -> None:
    assert (await box.exec("kill -TERM $$"))["exit_code"] == 143
    killed = await box.exec("kill -9 $$")
    assert (killed["exit_code"], killed["signal"], killed["verdict"]) == (137, 9, "signaled")
    assert (await box.exec("no-such-program-here"))["exit_code"] == 127
    assert (await box.exec("/etc/passwd"))["exit_code"] == 126
    missing = await box.op(["no-such-program-here"], wait=50)
    assert (missing["exit_code"], missing["verdict"]) == (127, "exited")
    refused = await box.op(["/etc/passwd"], wait=50)
    assert (refused["exit_code"], refused["verdict"]) == (126, "exited")


async def test_missing_user_and_directory_are_clear(box: Sidecar) -> None:
    answer = await box.exec("true", user="nobody-of-this-name")
    assert answer["verdict"] == "start_failed"
    assert "user" in answer["message"]
    assert "nobody-of-this-name" in answer["stderr"]
    assert isinstance(answer["exit_code"], int)
    answer = await box.exec("true", working_dir="/no/such/place")
    assert answer["verdict"] == "start_failed"
    assert "cwd" in answer["message"]


async def test_environment_directory_and_user(make) -> None:
    box = await make(
        root={"env": {"FROM_IMAGE": "1", "TWICE": "image"}},
        claim={"env": {"FROM_CLAIM": "2", "TWICE": "claim"}, "secrets": {"SECRET": "s3"}, "workdir": "/usr"},
    )
    answer = await box.exec(
        "echo $FROM_IMAGE $FROM_CLAIM $SECRET $TWICE $OWN; pwd; echo $HOME; id -un", env={"OWN": "4"}
    )
    assert answer["stdout"].splitlines() == ["1 2 s3 claim 4", "/usr", "/root", "root"]
    answer = await box.exec("id -u; pwd", user=65534, working_dir="/tmp", env={"TWICE": "op"})
    assert answer["stdout"].splitlines() == ["65534", "/tmp"]
    assert (await box.exec("id -un", user="nobody"))["stdout"] == "nobody\n"
    other = await make(root={"user": 1}, claim={"user": "65534:7"})
    assert (await other.exec("id -u; id -g"))["stdout"] == "65534\n7\n"
    assert (await other.exec("id -u", user=0))["stdout"] == "0\n"
    assert "s3" not in (await box.instance("GET", "/v1/state")).text
    assert "s3" not in box.log()


async def test_output_that_is_not_utf8(box: Sidecar) -> None:
    assert (await box.exec("printf 'a\\377b'"))["stdout"] == "a\ufffdb"


async def test_stdin_of_exec(box: Sidecar) -> None:
    assert (await box.exec("cat", stdin="small"))["stdout"] == "small"
    large = "x" * 3_000_000
    assert (await box.exec("wc -c", stdin=large))["stdout"].strip() == "3000000"
    assert (await box.exec("wc -c"))["stdout"].strip() == "0"


@pytest.mark.parametrize("command", ["true", "head -c 3000000 /dev/zero"])
async def test_the_verdict_is_a_header_too(box: Sidecar, command: str) -> None:
    """The gateway, which reads no bodies, counts it."""
    answer = await box.call("POST", "/v1/exec", json={"command": command})
    assert answer.headers["X-Sandlot-Verdict"] == answer.json()["verdict"] == "exited"


async def test_time_queued_in_the_gateway_is_in_the_record(box: Sidecar) -> None:
    answer = await box.call("POST", "/v1/exec", json={"command": "true"}, headers={"X-Sandlot-Queued": "250"})
    assert 250 <= answer.json()["usage"]["queued"] < 310


async def test_cpu_seconds_are_counted(box: Sidecar) -> None:
    answer = await box.exec(
        "python3 -c 'import time\nt=time.process_time()\nwhile time.process_time()-t<0.3: pass'"
    )
    assert 0.25 < answer["usage"]["cpu"] < 3


PACKETS = """
import fcntl, os
fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)
fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_DIRECT)
for number in range(200):
    os.write(1, b"%05d\\n" % number)
"""


async def test_output_in_packets_is_kept_whole(box: Sidecar) -> None:
    """Each read of such a pipe gives one write, however small."""
    answer = await box.exec(["python3", "-c", PACKETS])
    assert answer["stdout"] == "".join(f"{number:05d}\n" for number in range(200))
    assert not answer["truncated"]
