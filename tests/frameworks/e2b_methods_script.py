"""Calls every method of the unmodified SDKs of E2B that works here; `sync` or `async`. Prints the names of what it called.

Both halves run the same lines: the record runs each coroutine of the asynchronous one to its end.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import e2b
import e2b_code_interpreter
from e2b import PtySize, SandboxQuery, SandboxState
from e2b_calls import Record
from e2b_end import end
from e2b_templates_part import templates

HALF = sys.argv[1]
ASYNC = HALF == "async"
PEER = os.environ["SANDLOT_SCRIPT_PEER"]
RECORD = Record(HALF)
Sandbox: Any = getattr(e2b_code_interpreter, "AsyncSandbox" if ASYNC else "Sandbox")
HOME = {"HOME": "/tmp"}


def raises(kind: type[BaseException], work: Callable[[], object], *texts: str) -> None:
    try:
        found = work()
    except kind as error:
        assert all(text in str(error) for text in texts), error
        return
    raise AssertionError(f"no {kind.__name__}: {found!r}")


def sandboxes() -> None:
    box = Sandbox.create(timeout=120, metadata={"run": "every method"}, envs=HOME)
    assert box.is_running()
    box.set_timeout(600)
    info = box.get_info()
    assert info.end_at - info.started_at > timedelta(seconds=500)
    assert all(each.cpu_count == 1 for each in box.get_metrics())
    query = SandboxQuery(metadata={"run": "every method"})
    assert len(Sandbox.list(query=query).next_items()) == 1
    client = getattr(e2b.E2B(api_key=os.environ["E2B_API_KEY"]), Sandbox.__name__)
    assert [each.sandbox_id for each in client.list(query=query).next_items()] == [box.sandbox_id]
    assert Sandbox.connect(box.sandbox_id).files.write("/srv/state", "1")

    url = box.download_url("/srv/state")
    signature = e2b.get_signature("/srv/state", "read", None, box._envd_access_token)
    assert urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)["signature"] == [signature["signature"]]
    assert asked(url) == b"1"
    assert asked(box.upload_url("/srv/state"), b"2")
    assert asked(f"https://{box.get_host(49983)}/files?{url.partition('?')[2]}") == b"2"

    taken = box.create_snapshot()
    assert [each.snapshot_id for each in box.list_snapshots().next_items()] == [taken.snapshot_id]
    copy = Sandbox.create(taken.snapshot_id)
    assert copy.files.read("/srv/state") == "2"
    assert copy.kill()
    assert Sandbox.delete_snapshot(taken.snapshot_id)
    (fork,) = box.fork(count=1, timeout=60)
    assert fork.files.read("/srv/state") == "2"
    assert fork.kill()
    box.pause()
    assert box.get_info().state == SandboxState.PAUSED
    box.connect()
    box.beta_pause()
    assert Sandbox.connect(box.sandbox_id).files.read("/srv/state") == "2"
    assert box.kill()


def timeouts() -> None:
    """A sandbox that is paused at its timeout, instead of ended."""
    box = Sandbox.create(timeout=600, lifecycle={"on_timeout": "pause"}, envs=HOME)
    assert box.get_info().lifecycle == {"on_timeout": "pause", "auto_resume": False}
    box.files.write("/srv/state", "1")
    box.set_timeout(1)
    while box.get_info().state == SandboxState.RUNNING:
        time.sleep(0.1)
    box.connect()
    assert box.files.read("/srv/state") == "1"
    assert box.kill()


def asked(url: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/octet-stream"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def networks() -> None:
    """Policies of a create and of an update decide whether a server outside the machine is reached."""
    everything = ["0.0.0.0/0"]
    program = f"import socket; socket.create_connection(('{PEER}', 80), 5)"
    command = f'python3 -c "{program}" 2>/dev/null && echo reached || echo denied'

    def expect(outcome: str) -> None:
        assert box.commands.run(command).stdout == f"{outcome}\n"

    box = Sandbox.create(network={"deny_out": [f"{PEER}/32"]}, envs=HOME)
    expect("denied")
    box.update_network({"deny_out": ["203.0.113.0/24"]})
    expect("reached")
    box.update_network({"allow_out": ["203.0.113.7"], "deny_out": everything})
    expect("denied")
    box.update_network({"allow_out": [PEER], "deny_out": everything})
    expect("reached")
    box.update_network({"allow_internet_access": False})
    expect("denied")
    box.update_network({})
    expect("reached")
    box.kill()
    box = Sandbox.create(network={"allow_out": [PEER], "deny_out": everything}, envs=HOME)
    expect("reached")
    box.update_network({"deny_out": everything})
    expect("denied")
    box.kill()


def refused() -> None:
    """Each field of a create that the page says is a 400 names itself."""
    proxy = {"address": "proxy.example:1080"}
    for field, arguments in (
        ("mcp", {"mcp": {"time": {}}}),
        ("iam", {"iam": {"tokens": {"aws": {"audience": "a", "token_type": "id_token"}}}}),
        ("volumeMounts", {"volume_mounts": {"/data": "a-volume"}}),
        ("autoResume", {"lifecycle": {"on_timeout": "pause", "auto_resume": True}}),
        ("rules", {"network": {"rules": {"api.example.com": [{"transform": {"headers": {"A": "b"}}}]}}}),
        ("egressProxy", {"network": {"egress_proxy": proxy}}),
        ("dnsServers", {"network": {"dns_servers": ["192.0.2.1"]}}),
        ("httpsPorts", {"network": {"https_ports": [8443]}}),
    ):
        raises(e2b.SandboxException, lambda: Sandbox.create(**arguments), "400", field)  # noqa: B023


def commands(box: Any) -> None:
    cat = box.commands.run("cat; echo over", background=True, stdin=True)
    box.commands.send_stdin(cat.pid, "one\n")
    cat.send_stdin("two\n")
    if ASYNC:
        more = box.commands.stream_input(cat.pid)
        more.send("three\n")
        more.close()
    else:
        box.commands.stream_input(cat.pid, ["three\n"])
    assert cat.pid in {each.pid for each in box.commands.list()}
    cat.close_stdin()
    assert cat.wait().stdout == "one\ntwo\nthree\nover\n"

    waiting = box.commands.run("read line; echo got $line", background=True, stdin=True)
    waiting.disconnect()
    again = box.commands.connect(waiting.pid)
    box.commands.close_stdin(waiting.pid)
    assert again.wait().stdout == "got\n"
    first, second = (box.commands.run("sleep 300", background=True) for _ in range(2))
    assert first.kill()
    assert box.commands.kill(second.pid)
    for each in (first, second):
        raises(e2b.CommandExitException, each.wait)


def files(box: Any) -> None:
    box.files.write("/srv/files/a", "text")
    box.files.write_files([{"path": "/srv/files/b", "data": "b"}, {"path": "/srv/files/c", "data": "c"}])
    assert box.files.read("/srv/files/b") == "b"
    assert box.files.make_dir("/srv/files/more")
    box.files.rename("/srv/files/c", "/srv/files/more/c")
    assert box.files.exists("/srv/files/more/c")
    box.files.remove("/srv/files/b")
    assert [each.name for each in box.files.list("/srv/files")] == ["a", "more"]
    assert box.files.get_info("/srv/files/a").size == 4
    if ASYNC:
        events: asyncio.Queue[str] = asyncio.Queue()
        watch = box.files.watch_dir(
            "/srv/files/more", on_event=lambda event: events.put_nowait(f"{event.type.value} {event.name}")
        )
        box.files.remove("/srv/files/more/c")
        assert RECORD.loop.run_until_complete(asyncio.wait_for(events.get(), 30)) == "remove c"
    else:
        watch = box.files.watch_dir("/srv/files/more")
        box.files.remove("/srv/files/more/c")
        assert [f"{each.type.value} {each.name}" for each in watch.get_new_events()] == ["remove c"]
    watch.stop()


def terminals(box: Any) -> None:
    seen: list[bytes] = []
    size, wider = PtySize(rows=24, cols=80), PtySize(rows=30, cols=101)
    hears = {"on_data": seen.append} if ASYNC else {}
    pty = box.pty.create(size, **hears)
    pty.disconnect()
    pty = box.pty.connect(pty.pid, **hears)
    box.pty.resize(pty.pid, wider)
    box.pty.send_stdin(pty.pid, b"stty size\n")
    if ASYNC:
        more = box.pty.stream_input(pty.pid)
        more.send("exit\n")
        more.close()
        pty.wait()
    else:
        box.pty.stream_input(pty.pid, ["exit\n"])
        pty.wait(on_pty=seen.append)
    assert b"30 101" in b"".join(seen), seen
    other = box.pty.create(size, **hears)
    assert box.pty.kill(other.pid)


def git(box: Any) -> None:
    run = box.commands.run
    run("command -v git")  # raises where the image has none
    box.git.configure_user("Sam", "sam@example.org")
    box.git.set_config("init.defaultBranch", "main")
    assert (box.git.get_config("init.defaultBranch"), box.git.get_config("user.name")) == ("main", "Sam")
    box.git.init("/srv/origin", bare=True)
    box.git.clone("/srv/origin", "/srv/work")
    work = "/srv/work"
    box.files.write(f"{work}/a", "1")
    assert box.git.status(work).has_untracked
    box.git.add(work)
    box.git.commit(work, "first")
    box.git.push(work, remote="origin", branch="main")
    box.git.create_branch(work, "side")
    box.git.checkout_branch(work, "main")
    found = box.git.branches(work)
    assert (sorted(found.branches), found.current_branch) == (["main", "side"], "main")
    box.git.delete_branch(work, "side", force=True)
    assert box.git.branches(work).branches == ["main"]

    box.files.write(f"{work}/a", "2")
    box.git.add(work, files=["a"])
    assert box.git.status(work).has_staged
    box.git.restore(work, paths=["a"], staged=True)
    assert not box.git.status(work).has_staged
    box.git.reset(work, mode="hard")
    assert box.files.read(f"{work}/a") == "1"
    assert box.git.status(work).is_clean

    box.git.clone("/srv/origin", "/srv/other")
    box.files.write("/srv/other/b", "2")
    box.git.add("/srv/other")
    box.git.commit("/srv/other", "second")
    box.git.push("/srv/other")
    box.git.pull(work)
    assert box.files.read(f"{work}/b") == "2"
    box.git.remote_add(work, "spare", "/srv/other")
    assert box.git.remote_get(work, "spare") == "/srv/other"
    box.git.dangerously_authenticate("sam", "a-token", host="git.example.org")
    assert "sam:a-token@git.example.org" in box.files.read("/tmp/.git-credentials")


def cells(box: Any) -> None:
    assert box.run_code("x = 41; x + 1").text == "42"
    context = box.create_code_context(cwd="/tmp")
    assert box.run_code("'x' in globals()", context=context).text == "False"
    ended = box.run_code("print('first'); 1 / 0")
    logs = json.dumps({"stdout": ["first\n"], "stderr": []})
    assert json.loads(ended.to_json()) == {"results": [], "logs": logs, "error": ended.error.to_json()}
    assert (ended.logs.to_json(), json.loads(ended.error.to_json())["name"]) == (logs, "ZeroDivisionError")
    assert list(box.run_code("40 + 2").results[0].formats()) == ["text"]
    known = {"id": context.id, "language": context.language, "cwd": context.cwd}
    assert e2b_code_interpreter.Context.from_json(known).id == context.id
    assert {context.id} < {each.id for each in box.list_code_contexts()}
    box.restart_code_context(context)
    box.remove_code_context(context)
    assert [each.id for each in box.list_code_contexts()] == ["default"]


sandboxes()
timeouts()
networks()
refused()
shared = Sandbox.create(timeout=300, envs=HOME)
for part in (commands, files, terminals, git, cells):
    part(shared)
assert shared.kill()
templates(Sandbox, getattr(e2b, "AsyncTemplate" if ASYNC else "Template"), Path.cwd())
end(RECORD.report())
