"""What the unmodified `e2b` SDK does here, and the exceptions that users catch; synchronous.

Run with `old` for a release without what later ones have.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
import urllib.parse
from datetime import UTC, datetime, timedelta

from e2b import (
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)
from e2b_end import end
from e2b_files_part import files
from e2b_raises import raises

OLD = "old" in sys.argv
IMAGE = os.environ["SANDLOT_SCRIPT_IMAGE"]
# Not root's of the machine that runs the tests: its login shell may be slow, and leave locks when it is killed.
HOME = {"HOME": "/tmp"}


def lives() -> None:
    box = Sandbox.create(
        timeout=120, metadata={"run": "e2b=1", "a key": "ä"}, envs={"GREETING": "hello", **HOME}
    )
    assert box.is_running()
    info = box.get_info()
    assert (info.template_id, info.name, info.state) == (IMAGE, "base", SandboxState.RUNNING)
    assert info.metadata == {"run": "e2b=1", "a key": "ä"}
    assert timedelta(seconds=60) < info.end_at - datetime.now(UTC) < timedelta(seconds=121)
    box.set_timeout(600)
    assert box.get_info().end_at - datetime.now(UTC) > timedelta(seconds=500)
    again = Sandbox.connect(box.sandbox_id, timeout=60)
    assert again.commands.run("echo $GREETING").stdout == "hello\n"
    assert again.get_info().end_at - datetime.now(UTC) > timedelta(seconds=500)
    assert Sandbox.get_info(box.sandbox_id).sandbox_id == box.sandbox_id
    (now,) = box.get_metrics()
    assert (now.cpu_count, now.mem_total, now.disk_total > now.disk_used >= 0) == (1, 1 << 30, True)
    assert 0 <= now.mem_used < now.mem_total
    assert 0 <= now.cpu_used_pct < 200
    assert box.get_metrics(end=datetime.now(UTC) - timedelta(minutes=5)) == []
    assert box.get_host(80) == f"80-{box.sandbox_id}.{box.sandbox_domain or 'e2b.app'}"
    others = [Sandbox.create(metadata={"run": "e2b=1"}) for _ in range(2)]
    query = SandboxQuery(metadata={"run": "e2b=1"}, state=[SandboxState.RUNNING])
    pages = Sandbox.list(query=query, limit=2)
    first, second = pages.next_items(), pages.next_items()
    assert ([len(first), len(second)], pages.has_next) == ([2, 1], False)
    assert {each.sandbox_id for each in first + second} == {each.sandbox_id for each in [box, *others]}
    assert Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED])).next_items() == []
    assert [each.kill() for each in others] == [True, True]
    ended(box)


def ended(box: Sandbox) -> None:
    """What a killed sandbox raises."""
    running = box.commands.run("sleep 300", background=True, timeout=0)
    assert box.kill()
    assert not box.kill()
    raises(TimeoutException, running.wait)
    assert not box.is_running()
    raises(TimeoutException, lambda: box.commands.run("true"))
    raises(TimeoutException, lambda: box.files.read("/etc/hostname"))
    raises(TimeoutException, lambda: box.files.list("/"))
    raises(NotFoundException, box.get_info)
    raises(NotFoundException, lambda: box.set_timeout(10))
    raises(NotFoundException, lambda: Sandbox.connect(box.sandbox_id))
    raises(Exception, lambda: Sandbox.create("no-such-template"))


def commands(box: Sandbox) -> None:
    done = box.commands.run("echo out; echo err >&2; pwd", cwd="/tmp", envs={"A": "1"}, user="root")
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n/tmp\n", "err\n", 0)
    failed = raises(CommandExitException, lambda: box.commands.run("echo before; exit 3"))
    assert (failed.exit_code, failed.stdout) == (3, "before\n")
    killed = raises(CommandExitException, lambda: box.commands.run("kill -9 $$"))
    assert killed.exit_code == 137
    assert "SIGKILL" in (killed.error or "")
    lines: list[str] = []
    box.commands.run("echo 1; echo 2 >&2", on_stdout=lines.append, on_stderr=lines.append)
    assert sorted(lines) == ["1\n", "2\n"]
    began = time.monotonic()
    raises(TimeoutException, lambda: box.commands.run("sleep 60", timeout=1))
    assert time.monotonic() - began < 50
    raises(InvalidArgumentException, lambda: box.commands.run("true", cwd="/no/such/directory"))
    raises(AuthenticationException, lambda: box.commands.run("true", user="no-such-user"))
    large = box.commands.run("yes ä | head -c 3000000")
    assert large.stdout == "ä\n" * 1_000_000

    cat = box.commands.run("cat; echo over", background=True, stdin=True)
    box.commands.send_stdin(cat.pid, "one\n")
    if not OLD:
        box.commands.stream_input(cat.pid, ["two\n", b"three\n"])
    listed = {each.pid: each for each in box.commands.list()}
    assert (listed[cat.pid].cmd, listed[cat.pid].args) == ("/bin/bash", ["-l", "-c", "cat; echo over"])
    cat.disconnect()
    again = box.commands.connect(cat.pid)
    box.commands.close_stdin(cat.pid)
    found = again.wait()
    assert found.stdout.endswith("over\n")
    assert found.exit_code == 0

    sleeping = box.commands.run("sleep 300", background=True)
    assert box.commands.kill(sleeping.pid)
    assert raises(CommandExitException, sleeping.wait).exit_code == 137
    assert not box.commands.kill(sleeping.pid)
    raises(NotFoundException, lambda: box.commands.connect(sleeping.pid))
    raises(NotFoundException, lambda: box.commands.send_stdin(99_999_999, "x"))


def terminals(box: Sandbox) -> None:
    pty = box.pty.create(PtySize(rows=24, cols=80), cwd="/tmp", envs={"PS1": "$ "})
    box.pty.resize(pty.pid, PtySize(rows=30, cols=101))
    box.pty.send_stdin(pty.pid, b"stty size; echo in $PWD; exit 4\n")
    seen: list[bytes] = []
    ended = raises(CommandExitException, lambda: pty.wait(on_pty=seen.append))
    assert ended.exit_code == 4
    assert b"30 101" in b"".join(seen)
    assert b"in /tmp" in b"".join(seen)
    other = box.pty.create(PtySize(rows=24, cols=80))
    if not OLD:
        other.disconnect()
        other = box.pty.connect(other.pid)
        box.pty.stream_input(other.pid, ["echo streamed\n"])
    assert box.pty.kill(other.pid)
    assert not box.pty.kill(other.pid)


def ports(box: Sandbox) -> None:
    """A server in the sandbox, at the name that `get_host` returns; no name server knows it here."""
    box.files.write("/tmp/site/index.html", "from the sandbox")
    program = "import functools, http.server as s; h = functools.partial(s.SimpleHTTPRequestHandler, directory='/tmp/site')"
    program += "; r = s.ThreadingHTTPServer(('127.0.0.1', 0), h); print(r.server_port, flush=True); r.serve_forever()"
    server = box.commands.run(f'python3 -c "{program}"', background=True, timeout=0)
    port = int(next(out for out, _, _ in server if out))
    token = box.traffic_access_token
    assert token

    def ask(port: int, headers: dict[str, str]) -> tuple[int, str]:
        gateway = urllib.parse.urlsplit(os.environ["E2B_SANDBOX_URL"])
        connection = http.client.HTTPConnection(gateway.hostname or "", gateway.port, timeout=60)
        connection.request("GET", "/", headers={"Host": box.get_host(port), **headers})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    assert ask(port, {"e2b-traffic-access-token": token}) == (200, "from the sandbox")
    assert ask(port, {})[0] == 403
    assert server.kill()
    status, text = ask(port, {"e2b-traffic-access-token": token})
    assert (status, json.loads(text)["message"]) == (502, "The sandbox is running but port is not open")


def network() -> None:
    shut = Sandbox.create(allow_internet_access=False, envs=HOME)
    assert shut.get_info().allow_internet_access is False
    sends = "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))"
    refused = raises(CommandExitException, lambda: shut.commands.run(f'python3 -c "{sends}"'))
    assert "unreachable" in str(refused) or "not permitted" in str(refused), refused
    if not OLD:
        shut.update_network({"allow_internet_access": False})
        raises(Exception, lambda: shut.update_network({"allow_internet_access": True}))
    shut.kill()


def snapshots(box: Sandbox) -> None:
    """Files alone: what runs stays behind."""
    box.files.write("/srv/state/step", "1")
    taken = box.create_snapshot()
    box.files.write("/srv/state/step", "2")
    copies = [Sandbox.create(taken.snapshot_id, envs=HOME) for _ in range(2)]
    assert [each.files.read("/srv/state/step") for each in copies] == ["1", "1"]
    assert [each.kill() for each in copies] == [True, True]
    listed = box.list_snapshots().next_items()
    assert [each.snapshot_id for each in listed] == [taken.snapshot_id]
    raises(Exception, lambda: box.create_snapshot("a-name"))
    assert Sandbox.delete_snapshot(taken.snapshot_id)
    assert not Sandbox.delete_snapshot(taken.snapshot_id)
    raises(Exception, lambda: Sandbox.create(taken.snapshot_id))


def pauses() -> None:
    """Files alone are kept; the object that was paused goes on, and so does its id."""
    box = Sandbox.create(timeout=120, metadata={"kind": "paused"}, envs={"GREETING": "hello", **HOME})
    box.files.write("/srv/state/step", "1")
    running = box.commands.run("sleep 300", background=True)
    assert box.pause() is not False
    raises(TimeoutException, running.wait)
    assert not box.is_running()
    assert box.get_info().state == SandboxState.PAUSED
    query = SandboxQuery(metadata={"kind": "paused"}, state=[SandboxState.PAUSED])
    assert [each.sandbox_id for each in Sandbox.list(query=query).next_items()] == [box.sandbox_id]
    if not OLD:
        assert not box.pause()
    assert box.connect(timeout=300).sandbox_id == box.sandbox_id
    assert box.commands.run("cat /srv/state/step; echo $GREETING").stdout == "1hello\n"
    assert box.get_info().end_at - datetime.now(UTC) > timedelta(seconds=200)
    assert Sandbox.list(query=query).next_items() == []
    box.beta_pause()
    other = Sandbox.connect(box.sandbox_id)
    assert (other.sandbox_id, other.files.read("/srv/state/step")) == (box.sandbox_id, "1")
    other.pause()
    assert box.kill()
    raises(NotFoundException, box.connect)


def forks(box: Sandbox) -> None:
    box.files.write("/srv/state/fork", "1")
    made = box.fork(count=2, timeout=60)
    box.files.write("/srv/state/fork", "2")
    assert [each.files.read("/srv/state/fork") for each in made] == ["1", "1"]
    assert len({box.sandbox_id, *(each.sandbox_id for each in made)}) == 3
    assert [each.kill() for each in made] == [True, True]
    assert box.list_snapshots().next_items() == []


lives()
shared = Sandbox.create(timeout=300, envs=HOME)
commands(shared)
files(shared)
terminals(shared)
ports(shared)
snapshots(shared)
pauses()
if not OLD:
    forks(shared)
network()
assert shared.kill()
end("all of it")
