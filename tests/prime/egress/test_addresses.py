"""Which addresses and ports a running sandbox may reach, changed while it runs: real packets to a real namespace."""

from __future__ import annotations

import pytest

from tests.cable import Cable
from tests.prime.egress.sandbox import Sandbox
from tests.stack import Stack

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


def test_a_denied_network_is_out_of_reach_until_it_is_allowed_again(sandbox: Sandbox, net: Cable):
    targets = [f"tcp {net.inside} 7001", f"udp {net.inside} 7003", f"sendto {net.inside} 7003"]
    assert sandbox.reaches(*targets) == ["hi", "hi", "hi"]
    assert sandbox.set(deny=[f"{net.outside[:-1]}0/30"]) == 2
    assert sandbox.reaches(*targets) == ["EPERM", "EPERM", "EPERM"]
    assert sandbox.reaches(f"tcp ::ffff:{net.inside} 7001", f"tcp {net.inside6} 7006") == ["EPERM", "hi"]
    assert sandbox.set(deny=[]) == 3
    assert sandbox.reaches(*targets) == ["hi", "hi", "hi"]


def test_an_allowed_address_is_all_that_is_in_reach(sandbox: Sandbox, net: Cable):
    sandbox.set(allow=[net.inside])
    assert sandbox.reaches(f"tcp {net.inside} 7001", f"udp {net.inside} 7003") == ["hi", "hi"]
    assert sandbox.reaches(f"tcp {net.outside} 7001", f"tcp {net.inside6} 7006") == ["EPERM", "EPERM"]
    assert sandbox.reaches(f"tcp ::ffff:{net.inside} 7001") == ["hi"]
    sandbox.set(allow=[])
    assert sandbox.reaches(f"tcp {net.inside} 7001", f"sendto {net.inside} 7003") == ["EPERM", "EPERM"]


def test_ports_are_told_apart(sandbox: Sandbox, net: Cable):
    targets = [f"tcp {net.inside} 7001", f"tcp {net.inside} 7002", f"sendto {net.inside} 7003"]
    sandbox.set(deny=[f"{net.inside}:7002"])
    assert sandbox.reaches(*targets) == ["hi", "EPERM", "hi"]
    sandbox.set(allow=[f"{net.inside}:7002-7003"])
    assert sandbox.reaches(*targets) == ["EPERM", "hi", "hi"]


def test_what_runs_is_held_too_and_its_connections_are_cut(sandbox: Sandbox, net: Cable):
    serve = (
        "mkfifo /tmp/in /tmp/out; python3 /tmp/probe.py < /tmp/in > /tmp/out & exec 3> /tmp/in 4< /tmp/out;"
        f"ask() {{ echo tcp {net.inside} 7001 >&3; read answer <&4; echo $answer; }};"
        "ask; touch /tmp/asked; until [ -e /tmp/again ]; do sleep 0.02; done; ask"
    )
    old = (
        "import os, socket, time\n"
        f"s = socket.create_connection(('{net.inside}', 7001)); s.settimeout(60)\n"
        "s.sendall(b'one'); print(s.recv(9).decode(), flush=True); open('/tmp/joined', 'w')\n"
        "while not os.path.exists('/tmp/again'): time.sleep(0.02)\n"
        "s.sendall(b'two'); s.settimeout(1)\n"
        "try: print(s.recv(9).decode())\n"
        "except TimeoutError: print('silence')\n"
    )
    sandbox.run("cat > /tmp/serve", stdin=serve)
    sandbox.run("cat > /tmp/old.py", stdin=old)
    sandbox.run("sh /tmp/serve > /tmp/said 2>&1 & python3 /tmp/old.py > /tmp/kept 2>&1 &")
    sandbox.run("until [ -e /tmp/asked ] && [ -e /tmp/joined ]; do sleep 0.02; done")
    sandbox.set(deny=[net.inside])
    sandbox.run("touch /tmp/again; until [ $(cat /tmp/said /tmp/kept | wc -l) = 4 ]; do sleep 0.02; done")
    assert sandbox.run("cat /tmp/said").split() == ["hi", "EPERM"]
    assert sandbox.run("cat /tmp/kept").split() == ["one", "silence"]


def test_the_machine_s_loopback_stays(sandbox: Sandbox, stack: Stack):
    sandbox.set(allow=[])
    assert sandbox.reaches(f"tcp 127.0.0.1 {stack.port}") != ["EPERM"]


def test_no_socket_goes_round_it(sandbox: Sandbox):
    for kind in ("socket.AF_PACKET, socket.SOCK_RAW", "socket.AF_INET, socket.SOCK_RAW, 1"):
        script = f"import socket\ntry: socket.socket({kind})\nexcept PermissionError: print('refused')"
        assert sandbox.run("python3 -", stdin=script) == "refused\n"
