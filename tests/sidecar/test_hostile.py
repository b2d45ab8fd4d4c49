"""Hostile programs: bombs, floods, and attackers who are root inside the sandbox and know the port."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from sandlot_sidecar.server.http import Http
from sandlot_sidecar.server.strangers import MOST_INSIDE, MOST_OUTSIDE

from tests.ports import free_port
from tests.sidecar.processes import descendants, gone
from tests.sidecar.support import MEMORY, SANDBOX_TOKEN, Sidecar, parse_frames, payload, tells_why
from tests.sidecar.webhook_receiver import INSTANCE_TOKEN
from tests.waiting import until

pytestmark = pytest.mark.root


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def spilled(box: Sidecar) -> int:
    """Bytes in unlinked files that the server holds open."""
    total = 0
    for entry in Path(f"/proc/{box.pid}/fd").iterdir():
        try:
            if "(deleted)" in os.readlink(entry) and box.directory in os.readlink(entry):
                total += entry.stat().st_size
        except OSError:
            continue
    return total


async def usable(box: Sidecar) -> None:
    answer = await asyncio.wait_for(box.exec("echo usable"), 20)
    assert (answer["stdout"], answer["verdict"]) == ("usable\n", "exited")


async def test_a_flood_of_output_has_bounded_memory(box: Sidecar) -> None:
    await box.exec("true")
    before = resident(box.pid)
    document = await box.op("head -c 100000000 /dev/zero | tr '\\0' y", wait=60)
    assert (document["verdict"], document["exit_code"]) == ("exited", 0)
    assert document["stdout_bytes"] == 100_000_000
    assert document["truncated"] is True
    assert resident(box.pid) - before < 16 << 20
    assert spilled(box) <= 65 << 20
    await usable(box)


async def test_exec_carries_the_first_and_the_last_of_a_flood(box: Sidecar) -> None:
    answer = await box.exec("echo begin; head -c 40000000 /dev/zero | tr '\\0' y; echo end")
    assert answer["stdout_bytes"] == 40_000_010
    assert answer["truncated"] is True
    assert len(answer["stdout"]) == 16 << 20
    assert answer["stdout"].startswith("begin\ny")
    assert answer["stdout"].endswith("yend\n")


async def test_output_limit_of_one_op(box: Sidecar) -> None:
    answer = await box.call(
        "POST", "/v1/ops", json={"command": "seq 1 100000; echo err >&2", "output_limit": 1000}
    )
    frames = parse_frames(answer.content)
    end = json.loads(frames[-1][1])
    assert len(payload(frames, "o")) + len(payload(frames, "e")) == 1000
    assert (end["truncated"], end["stderr_bytes"]) == (True, 4)
    assert end["stdout_bytes"] == sum(len(f"{number}\n") for number in range(1, 100001))


async def test_an_output_limit_without_end_is_refused_by_name(box: Sidecar) -> None:
    answer = await box.call("POST", "/v1/ops", json={"command": "true", "output_limit": (1 << 30) + 1})
    assert (answer.status_code, answer.json()["field"]) == (400, "output_limit")
    assert answer.json()["message"] == f"output_limit must be from 0 to {1 << 30}"


LAST_WORDS = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.write(1, b"a" * 100_000)  # from here on the pipe has room for a MiB
signal.sigwait({signal.SIGUSR1})
os.write(1, b"b" * 900_000)
signal.pause()
"""


async def test_the_last_words_of_a_lost_command_are_kept(box: Sidecar) -> None:
    """They were in the pipe when its init was lost; the server, which was busy, had no time to read them."""
    await box.call("PUT", "/v1/files?path=/words.py", content=LAST_WORDS.encode())
    await box.op(["python3", "/words.py"], id="speaks", detach=True)
    await until(lambda: wrote(box, 100_000))
    (speaker,) = [pid for pid in descendants(box.pid) if b"/words.py" in command_line(pid)]
    (init,) = inits(box)
    os.kill(box.pid, signal.SIGSTOP)
    try:
        os.kill(speaker, signal.SIGUSR1)
        await until(lambda: written(speaker, 1_000_000))
        os.kill(init, signal.SIGKILL)
        await gone({speaker})
        await until(lambda: replaced(box, init))
    finally:
        os.kill(box.pid, signal.SIGCONT)
    ended = await box.ended("speaks")
    assert (ended["verdict"], ended["stdout_bytes"]) == ("sandbox_broken", 1_000_000)


async def wrote(box: Sidecar, count: int) -> bool:
    return (await box.call("GET", "/v1/ops/speaks")).json()["stdout_bytes"] == count


async def written(pid: int, count: int) -> bool:
    return int(counters(pid)["wchar"]) >= count


def counters(pid: int) -> dict[str, str]:
    return dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())


def inits(box: Sidecar) -> set[int]:
    return {pid for pid in descendants(box.pid) if name_of(pid).endswith("init")}


async def replaced(box: Sidecar, init: int) -> bool:
    return bool(inits(box) - {init})


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


async def test_a_slow_reader_gets_all_of_it(box: Sidecar) -> None:
    received = bytearray()
    async with box.stream("POST", "/v1/ops", json={"command": "seq 1 300000"}) as answer:
        async for part in answer.aiter_raw(65536):
            received += part
            await asyncio.sleep(0.001)
    lines = payload(parse_frames(bytes(received)), "o").split()
    assert (len(lines), lines[-1]) == (300_000, b"300000")


async def test_a_fork_bomb_ends_in_a_verdict(box: Sidecar) -> None:
    answer = await box.call(
        "POST",
        "/v1/exec",
        json={"command": ":(){ :|:& };:; wait; while :; do :|:; done", "timeout": 3, "shell": "bash"},
    )
    assert answer.json()["verdict"] in ("timeout", "pids_limit")
    await until(lambda: calm(box))
    await usable(box)
    direct = await box.exec("python3 -c 'import os\nwhile True: os.fork()'", timeout=5)
    assert direct["verdict"] in ("pids_limit", "timeout")
    await until(lambda: calm(box))
    await usable(box)


async def test_a_bomb_that_starves_its_runner_is_dead_when_its_result_is_there(make) -> None:
    box = await make(limits={"cpu": 0.5, "memory": 1 << 30, "pids": 500}, claim={})
    answer = await box.exec(
        "python3 -c 'import os\nwhile True:\n try: os.fork()\n except OSError: pass'", timeout=2
    )
    assert answer["verdict"] == "timeout"
    assert await calm(box)
    await usable(box)


async def test_a_fork_bomb_in_the_background_is_defused_by_the_next_ops(box: Sidecar) -> None:
    bomb = await box.exec(":(){ :|:& };:", timeout=5, shell="bash")
    assert bomb["verdict"] in ("exited", "pids_limit", "timeout")

    async def calm_after_an_op() -> bool:
        await usable(box)
        return await calm(box)

    await until(calm_after_an_op)


async def calm(box: Sidecar) -> bool:
    return len(descendants(box.pid)) < 30


async def test_too_much_memory_is_oom_and_the_sandbox_lives(box: Sidecar) -> None:
    if box.cgroup.name is None:
        pytest.skip("needs a writable memory cgroup")
    await box.exec("sleep 300 & echo background")
    answer = await box.exec("python3 -c 'x = bytearray(2 << 30)'", timeout=30)
    assert answer["verdict"] == "oom"
    assert answer["exit_code"] != 0
    tells_why(answer, "the memory limit was reached")
    await usable(box)


async def test_a_reason_is_told_after_output_of_any_length(box: Sidecar) -> None:
    flood = "printf 'no newline' >&2; head -c 1000 /dev/zero >&2; exec sleep 60"
    document = await box.op(flood, output_limit=100, timeout=2, wait=20)
    assert document["verdict"] == "timeout"
    told = (await box.call("GET", f"/v1/ops/{document['op_id']}/output?stream=stderr")).content
    assert told.startswith(b"no newline")
    assert told.endswith(b"\0\nsandlot: reached its time limit of 2 s\n")


async def test_memory_that_others_used_up_is_not_the_code_s_doing() -> None:
    """A group above the sandbox's is at its limit long before the sandbox is, as a node may be."""
    box = Sidecar()
    if box.cgroup.name is None:
        await box.close()
        pytest.skip("needs a writable memory cgroup")
    box.cgroup.make()
    node = Path("/sys/fs/cgroup/memory") / box.cgroup.name
    box.config["cgroup_parent"] = f"{box.cgroup.name}/sandbox"
    (node / "memory.limit_in_bytes").write_text(str(160 << 20))
    try:
        await box.start()
        await box.claim()
        answer = await box.op(["python3", "-c", "x = bytearray(300 << 20)"], wait=30)
        assert answer["verdict"] == "sandbox_broken", answer
        assert answer["message"] == "the node is out of memory, by no doing of this sandbox"
        await usable(box)
        await fill_unkillable(box)
        lost = await box.ended("hides", wait=30)
        assert (lost["verdict"], lost["message"]) == (answer["verdict"], answer["message"])
        await usable(box)
        # Its own limit, lower than the node's, is its own doing.
        own = await box.op(["python3", "-c", "x = bytearray(100 << 20)"], memory=64 << 20, wait=30)
        assert own["verdict"] == "oom", own
    finally:
        await box.close()


# CAP_SYS_RESOURCE: without it a sidecar cannot hold an op to its score, and the kernel kills the runner, which is larger.
MAY_SPARE = bool(int(Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0], 16) >> 24 & 1)
HIDDEN = """
import os, sys
try:
    open("/proc/self/oom_score_adj", "w").write("0")
    print("lowered", flush=True)
except OSError:
    print("refused", flush=True)
sys.stdin.readline()
# What a memfd holds counts for the control group and for no process, and dd is smaller than the runner.
os.dup2(os.memfd_create("held"), 1)
os.execvp("sh", ["sh", "-c", "dd if=/dev/zero bs=1M; exec sleep 606"])
"""


async def test_an_op_cannot_have_its_runner_killed_for_its_memory(box: Sidecar) -> None:
    if box.cgroup.name is None:
        pytest.skip("needs a writable memory cgroup")
    answer = await box.exec(["python3", "-c", HIDDEN], stdin="\n", timeout=30)
    assert answer["verdict"] == "oom", answer
    assert answer["stdout"] == ("refused\n" if MAY_SPARE else "lowered\n")
    await usable(box)


async def test_a_runner_that_is_killed_for_the_op_s_memory_is_the_op_s_oom(box: Sidecar) -> None:
    if box.cgroup.name is None:
        pytest.skip("needs a writable memory cgroup")
    await fill_unkillable(box)
    ended = await box.ended("hides", wait=30)
    assert (ended["verdict"], ended["message"]) == ("oom", "the memory limit was reached"), ended
    assert ended["usage"]["peak_memory"] > MEMORY // 2
    assert not [pid for pid in descendants(box.pid) if b"606" in command_line(pid)]
    await usable(box)


async def fill_unkillable(box: Sidecar) -> None:
    """Of an op that the kernel spares, its runner is what is left to be killed."""
    await box.op(["python3", "-c", HIDDEN], id="hides", stdin=True, detach=True)
    await until(lambda: runs(box, "hides"))
    (hog,) = [pid for pid in descendants(box.pid) if b"memfd_create" in command_line(pid)]
    if MAY_SPARE:
        await asyncio.to_thread(Path(f"/proc/{hog}/oom_score_adj").write_text, "-1000")
    assert (await box.call("POST", "/v1/ops/hides/stdin?offset=0", content=b"\n")).status_code == 200


SEGMENTS = """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
while True:
    segment = libc.shmget(0, 8 << 20, 0o1600)  # IPC_PRIVATE, IPC_CREAT: it outlives who made it
    place = ctypes.c_void_p(libc.shmat(segment, None, 0))
    ctypes.memset(place, 1, 8 << 20)
    libc.shmdt(place)
"""


def fill(group: Path) -> None:
    used = int((group / "memory.usage_in_bytes").read_text())
    (group / "memory.limit_in_bytes").write_text(str(used + (64 << 10)))


async def test_memory_that_code_has_left_full_is_its_own_doing(box: Sidecar) -> None:
    """No process is left to be killed, and what is to run the next command finds no memory."""
    if box.cgroup.name is None:
        pytest.skip("needs a writable memory cgroup")
    assert (await box.exec(["python3", "-c", SEGMENTS], timeout=30))["verdict"] == "oom"
    group = Path("/sys/fs/cgroup/memory") / box.cgroup.name

    for _ in range(3):
        await asyncio.to_thread(fill, group)  # as a smaller program would
        answers = await asyncio.gather(*(box.op("exec sleep 0.2", wait=30) for _ in range(6)))
        told = {(answer["verdict"], answer["message"]) for answer in answers}
        assert told <= {("exited", None), ("oom", "the memory limit was reached")}, (told, box.log())
    assert ("oom", "the memory limit was reached") in told
    assert (await box.instance("POST", "/v1/reset", json={"keep_claim": True})).status_code == 200
    await usable(box)


LEASED = """
import fcntl, shutil, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)  # by which it is asked to give it back
shutil.copy("/bin/true", "/leased")
with open("/leased", "r+b") as file:
    fcntl.fcntl(file, 1024, 1)  # F_SETLEASE, F_WRLCK: who opens it waits until it is given back, 45 s at most
    print("held", flush=True)
    time.sleep(600)
"""


async def test_a_runner_that_code_keeps_busy_holds_nobody(box: Sidecar) -> None:
    """It waits in an exec, and reads no messages."""
    await box.op(["python3", "-c", LEASED], id="holds", detach=True)

    async def held() -> bool:
        return (await box.call("GET", "/v1/ops/holds")).json()["stdout_bytes"] == 5

    await until(held)
    await box.op(["/leased"], id="waits", detach=True)
    statuses = set()
    async with asyncio.timeout(30):
        for number in range(2000):
            answer = await box.call(
                "POST", "/v1/ops/waits/signal", json={"signal": "CONT", "id": str(number)}
            )
            statuses.add(answer.status_code)
            if answer.status_code == 503:
                break
        assert statuses == {200, 503}, answer.text
        assert answer.json()["error"] == "busy"
        assert (await box.instance("GET", "/v1/state")).status_code == 200
        await usable(box)
        ended = (await box.call("DELETE", "/v1/ops/waits")).json()
    assert ended["verdict"] == "killed", ended
    await box.call("DELETE", "/v1/ops/holds")
    await usable(box)


async def test_an_executor_that_is_busy_holds_nobody(box: Sidecar) -> None:
    os.kill(box.executor_pid(), signal.SIGSTOP)
    try:
        path = "/" + "x" * 4000
        asked = [asyncio.create_task(box.call("GET", f"/v1/files/stat?path={path}")) for _ in range(90)]
        await asyncio.wait(asked, timeout=1)
        async with asyncio.timeout(20):
            assert (await box.instance("GET", "/v1/state")).status_code == 200
    finally:
        os.kill(box.executor_pid(), signal.SIGCONT)
    assert {answer.status_code for answer in await asyncio.gather(*asked)} == {
        400
    }  # a name is 255 bytes at most
    await usable(box)


async def test_memory_of_one_op(box: Sidecar) -> None:
    if box.cgroup.name is None:
        pytest.skip("needs a writable memory cgroup")
    document = await box.op(["python3", "-c", "x = bytearray(200 << 20)"], memory=64 << 20, wait=30)
    assert document["verdict"] == "oom"
    fine = await box.op(["python3", "-c", "x = bytearray(100 << 20)"], wait=30)
    assert fine["verdict"] == "exited"


async def test_a_full_disk_is_a_verdict(box: Sidecar) -> None:
    answer = await box.exec("dd if=/dev/zero of=/fill bs=1M")
    assert answer["verdict"] == "disk_full"
    assert "No space left" in answer["stderr"]
    tells_why(answer, "the sandbox's disk was full")
    await usable(box)
    await box.exec("rm /fill")
    assert (await box.exec("exit 1"))["verdict"] == "exited"


async def test_killing_everything_hurts_only_the_sandbox(box: Sidecar) -> None:
    background = await box.op("sleep 300", id="victim", detach=True)
    assert background["state"] in ("running", "queued")
    await until(lambda: runs(box, "victim"))
    answer = await box.exec("kill -9 -1; kill -9 1; echo survived")
    assert (answer["verdict"], answer["stdout"]) == ("exited", "survived\n"), answer
    victim = await box.ended("victim")
    assert victim["verdict"] == "signaled"
    await usable(box)


async def runs(box: Sidecar, op_id: str) -> bool:
    return (await box.call("GET", f"/v1/ops/{op_id}")).json()["pid"] is not None


SPY = r"""
import os
found = []
for pid in filter(str.isdigit, os.listdir('/proc')):
    for name in ('cmdline', 'environ', 'maps', 'status'):
        try:
            data = open(f'/proc/{pid}/{name}', 'rb').read()
        except OSError:
            continue
        if b'TOKENPART' in data or b'sandlot_sidecar' in data and pid != str(os.getpid()):
            found.append((pid, name))
    try:
        links = [os.readlink(f'/proc/{pid}/fd/{fd}') for fd in os.listdir(f'/proc/{pid}/fd')]
    except OSError:
        continue
    if pid == '1' and links:
        found.append((pid, links))
print(found)
"""


async def test_user_code_sees_nothing_of_the_sidecar(box: Sidecar) -> None:
    spy = SPY.replace("TOKENPART", "of-a-test")
    await box.call("PUT", "/v1/files?path=/spy.py", content=spy.encode())
    assert (await box.exec("python3 /spy.py"))["stdout"].strip() == "[]"
    pids = (await box.exec("ls -d /proc/[0-9]*; ls -l /proc/self/fd"))["stdout"]
    assert pids.count("/proc/") <= 8
    assert "sidecar.sock" not in pids


async def test_no_token_in_the_executor_or_on_a_command_line(box: Sidecar) -> None:
    for pid in descendants(box.pid) - {box.pid}:
        memory = await asyncio.to_thread(memory_of, pid)
        assert INSTANCE_TOKEN.encode() not in memory, pid
        assert SANDBOX_TOKEN.encode() not in memory, pid
    for pid in descendants(box.pid):
        for name in ("cmdline", "environ"):
            assert b"of-a-test" not in await asyncio.to_thread(Path(f"/proc/{pid}/{name}").read_bytes)


def memory_of(pid: int) -> bytes:
    """All writable memory of a process."""
    content = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            if " rw" in line and "[v" not in line:
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                memory.seek(start)
                content.append(memory.read(end - start))
    return b"".join(content)


ATTACK = r"""
import socket, sys
port = int(sys.argv[1])
def ask(method, path, token=None, body=b'{}'):
    s = socket.create_connection(('127.0.0.1', port), 5)
    head = f'{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n'
    if token is not None:
        head += f'Authorization: {token}\r\n'
    s.sendall(head.encode() + b'\r\n' + body)
    data = b''
    while part := s.recv(65536):
        data += part
    return int(data.split()[1])
paths = [('POST', p) for p in ('/v1/claim', '/v1/end', '/v1/reset', '/v1/exec', '/v1/ops', '/v1/upload', '/v1/tcp?port=22',
         '/v1/files/mkdir', '/v1/ops/x/stdin', '/v1/ops/x/signal')]
paths += [('GET', p) for p in ('/v1/state', '/v1/metrics', '/v1/logs', '/v1/ops', '/v1/files?path=/etc/passwd', '/v1/nothing', '/')]
paths += [('PUT', '/v1/files?path=/x'), ('DELETE', '/v1/ops/x')]
for method, path in paths:
    for token in (None, '', 'Bearer', 'Bearer ', 'Bearer x', 'Basic eDp4', 'Bearer ' + 'a' * 8000):
        status = ask(method, path, token)
        assert status == 401, (method, path, token, status)
print(ask('GET', '/healthz'))
idle = [socket.create_connection(('127.0.0.1', port), 5) for _ in range(600)]
print('held', len(idle))
"""


async def test_the_port_opens_nothing_to_user_code_without_a_token(make) -> None:
    port = free_port()
    box = await make(listen=f"127.0.0.1:{port}")
    await box.reconnect(f"http://127.0.0.1:{port}")
    await box.claim(network="full")
    await box.call("PUT", "/v1/files?path=/attack.py", content=ATTACK.encode())
    answer = await box.exec(f"python3 /attack.py {port}", timeout=60)
    assert answer["stdout"] == "200\nheld 600\n", answer
    await usable(box)
    await until(lambda: few(box))


class Wire:
    """A transport that only knows its two ends."""

    def __init__(self, peer: Any, own: Any) -> None:
        self._ends = {"peername": peer, "sockname": own}
        self.aborted = False

    def get_extra_info(self, name: str) -> Any:
        return self._ends[name]

    def set_write_buffer_limits(self, *, high: int) -> None:
        return

    def abort(self) -> None:
        self.aborted = True

    close = abort


INSIDE = [
    Wire(("127.0.0.1", 5), ("127.0.0.1", 1)),
    Wire(("127.0.0.9", 5), ("10.0.0.7", 1)),
    Wire(("10.0.0.7", 5), ("10.0.0.7", 1)),
    Wire(("10.0.0.7", 5), ("127.0.0.1", 1)),
    Wire(("::1", 5, 0, 0), ("::1", 1, 0, 0)),
    Wire(("::ffff:127.0.0.1", 5, 0, 0), ("::ffff:10.0.0.7", 1, 0, 0)),
    Wire(("fe80::7", 5, 0, 2), ("fd00::7", 1, 0, 0)),
    Wire(None, ("10.0.0.7", 1)),
]
OUTSIDE = [
    Wire(("10.0.0.8", 5), ("10.0.0.7", 1)),
    Wire(("fd00::8", 5, 0, 0), ("fd00::7", 1, 0, 0)),
    Wire("", "/a/socket"),
]


async def test_strangers_are_counted_by_where_they_come_from() -> None:
    http = Http(instance_token="t")

    def connect(wire: Wire) -> Wire:
        http.connect().connection_made(wire)
        return wire

    gateways = [connect(wire) for wire in OUTSIDE]
    floods = [connect(Wire(INSIDE[0].get_extra_info("peername"), ("127.0.0.1", 1))) for _ in range(1000)]
    floods += [connect(wire) for wire in INSIDE]
    assert not any(wire.aborted for wire in gateways)
    assert sum(not wire.aborted for wire in floods) == MOST_INSIDE
    more = [connect(Wire(("10.0.0.8", 5), ("10.0.0.7", 1))) for _ in range(1000)]
    assert sum(not wire.aborted for wire in more) == MOST_OUTSIDE
    await http.close()


async def few(box: Sidecar) -> bool:
    return box.descriptors()[0] < 300


async def test_tunnel(box: Sidecar) -> None:
    server = (
        "import socket\ns=socket.socket(); s.setsockopt(1,2,1); s.bind(('127.0.0.1',7777)); s.listen()\nprint('on',flush=True)\n"
        "while 1:\n c,_=s.accept(); d=b''\n while p:=c.recv(65536): d+=p\n c.sendall(d[::-1]); c.close()"
    )
    await box.call("PUT", "/v1/files?path=/echo.py", content=server.encode())
    await box.op(["python3", "/echo.py"], id="echo", detach=True)
    await until(lambda: printed(box, "echo", "on\n"))
    reader, writer = await box.raw()
    head = b"POST /v1/tcp?port=7777 HTTP/1.1\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: sandlot-tcp\r\n\r\n"
    writer.write(head % box.token.encode() + b"early ")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    message = os.urandom(2_000_000)
    writer.write(message)
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(-1), 20) == (b"early " + message)[::-1]
    writer.close()
    reader, writer = await box.raw()
    writer.write((head % box.token.encode()).replace(b"7777", b"7778"))
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 502 ")
    writer.close()
    plain = await box.call("POST", "/v1/tcp?port=7777")
    assert plain.status_code == 400


async def printed(box: Sidecar, op_id: str, text: str) -> bool:
    return (await box.call("GET", f"/v1/ops/{op_id}/output")).text == text
