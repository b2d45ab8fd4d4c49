"""A process that uses the blocking SDK forks: parent and child share no connection and no lock."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.sdk.service.server import Service

pytestmark = pytest.mark.timeout(120)

PROGRAM = """
import ctypes, os, signal, sys, threading
from sandlot import Client, Sandbox
from sandlot._protocol.messages import with_query

client = Client()
box = Sandbox.create(client=client)

def calls(name):
    for number in range(20):
        box.files.write(f"/tmp/{name}", f"{name} {number}")
        assert box.files.read_text(f"/tmp/{name}") == f"{name} {number}"

def in_child(work, fork=os.fork):
    child = fork()
    if child == 0:
        signal.alarm(90)  # a child that waits for a lock for ever is killed
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child

calls("before")
"""
ENDED = """
assert os.waitpid(child, 0)[1] == 0
calls("after")
box.delete()
"""
HELD = """
transport = client.transport
held, done = threading.Event(), threading.Event()

def hold():
    (pool,) = transport._pools.values()
    with transport._lock, pool._lock:
        held.set()
        done.wait()

threading.Thread(target=hold).start()
held.wait()
child = in_child(lambda: calls("child"))
done.set()
"""
AT_ONCE = """
child = in_child(lambda: calls("child"))
calls("parent")
"""
BY_C = """
child = in_child(lambda: calls("child"), fork=ctypes.PyDLL(None).fork)  # Python calls no hook of a fork
calls("parent")
"""
STREAMING = """
box.files.write("/tmp/large", b"x" * 30_000_000)
route = with_query("/files", {"path": "/tmp/large"})
body = box._plane.open("GET", route)

def leave():
    body.close()
    calls("child")

child = in_child(leave)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
assert len(body.read_all()) == 30_000_000
"""


@pytest.mark.parametrize(
    "moment", [HELD, AT_ONCE, BY_C, STREAMING], ids=["held", "at_once", "by_c", "streaming"]
)
def test_parent_and_child_both_get_their_own_answers(service: Service, moment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + moment + ENDED],
        env=service.environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
