"""Which hosts a running sandbox may reach by their names, changed while it runs: real connections to real servers."""

from __future__ import annotations

import pytest

from tests.cable import Cable
from tests.prime.egress.sandbox import NOWHERE, Sandbox
from tests.prime_rpc.conftest import make_box
from tests.stack import Stack
from tests.web import ASK

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


def test_an_allowed_name_is_reached_and_no_other(sandbox: Sandbox, net: Cable):
    sandbox.set(allow=["allowed.test", "*.wild.test:80"])
    asked = [
        f"{kind} {NOWHERE} {name}" for kind in ("http", "tls") for name in ("allowed.test", "other.test")
    ]
    assert sandbox.asks(*asked) == ["http", "403", "tls", "TLSV1_ALERT_ACCESS_DENIED"]
    assert sandbox.asks(f"http ::ffff:{NOWHERE} ALLOWED.test.") == ["http"]
    # Whatever the address says: a connection to the allowed host's own needs the name as well.
    assert sandbox.asks(f"http {net.inside} other.test", f"tls {net.inside} -") == [
        "403",
        "TLSV1_ALERT_ACCESS_DENIED",
    ]
    assert sandbox.reaches(f"tcp {net.inside} 7001", f"udp {net.inside} 443") == ["EPERM", "EPERM"]
    # The name server is in reach, so that names can be looked up at all.
    assert sandbox.reaches(f"udp {net.inside} 53") == ["hi"]


def test_who_still_sends_hears_why_it_is_refused(sandbox: Sandbox, net: Cable):
    sandbox.set(allow=["allowed.test"])
    code = (
        "import http.client\n"
        f"asked = http.client.HTTPConnection('{NOWHERE}', 80, timeout=60)\n"
        "asked.request('PUT', '/', body=b'x' * 3_000_000, headers={'Host': 'other.test'})\n"
        "print(asked.getresponse().read().decode())"
    )
    assert "does not let other.test through" in sandbox.run("python3 -", stdin=code)


def test_a_denied_name_is_not_reached_and_every_other_is(sandbox: Sandbox, net: Cable):
    sandbox.set(deny=["*.allowed.test", "other.test:443", "192.0.2.7"])
    names = ("sub.allowed.test", "allowed.test", "other.test")
    assert sandbox.asks(*(f"http {NOWHERE} {name}" for name in names)) == ["403", "http", "http"]
    denied = "TLSV1_ALERT_ACCESS_DENIED"
    assert sandbox.asks(*(f"tls {NOWHERE} {name}" for name in names)) == [denied, "tls", denied]
    assert sandbox.asks(f"tls {NOWHERE} -", "http 192.0.2.7 allowed.test") == [denied, "EPERM"]
    assert sandbox.asks(f"http {NOWHERE} {net.inside}", f"http {NOWHERE} nobody.test") == ["http", "502"]
    assert sandbox.reaches(f"tcp {net.inside} 7001", f"udp {net.inside} 443") == ["hi", "EPERM"]
    assert sandbox.reaches(f"tcp {net.inside6} 7006") == ["EPERM"]


def test_a_name_reaches_no_address_that_is_denied_nor_the_machine_s_own(sandbox: Sandbox, net: Cable):
    sandbox.set(deny=[net.inside, "other.test"])
    asked = ["allowed.test", "localhost", "127.0.0.1", "169.254.169.254"]
    assert sandbox.asks(*(f"http {NOWHERE} {name}" for name in asked)) == ["403"] * 4


def test_a_connection_to_a_name_is_cut_when_it_is_no_longer_allowed(sandbox: Sandbox, net: Cable):
    """And while it is there it carries what is sent both ways, until each side has ended."""
    old = (
        "import os, socket, time\n"
        f"s = socket.create_connection(('{NOWHERE}', 80)); s.settimeout(60)\n"
        "s.sendall(b'GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\nSize: 5000000\\r\\n\\r\\n')\n"
        "file = s.makefile('rb')\n"
        "while file.readline() != b'\\r\\n': pass\n"
        "print(len(file.read(5000000)), flush=True); open('/tmp/joined', 'w')\n"
        "while not os.path.exists('/tmp/again'): time.sleep(0.02)\n"
        "try: s.sendall(b'two'); print(s.recv(9).decode() or 'end')\n"
        "except ConnectionError: print('reset')\n"
    )
    for lists, said in (({"allow": ["*.test"]}, "two"), ({"allow": ["other.test"]}, "reset")):
        sandbox.set(allow=["allowed.test"])
        sandbox.run("rm -f /tmp/again /tmp/joined; cat > /tmp/old.py", stdin=old)
        sandbox.run("python3 /tmp/old.py > /tmp/kept 2>&1 & until [ -e /tmp/joined ]; do sleep 0.02; done")
        sandbox.set(**lists)
        sandbox.run("touch /tmp/again; until [ $(wc -l < /tmp/kept) = 2 ]; do sleep 0.02; done")
        assert sandbox.run("cat /tmp/kept").split() == ["5000000", said]


def test_another_sandbox_s_proxy_lets_nobody_through(stack: Stack, sandbox: Sandbox, net: Cable):
    sandbox.set(allow=["allowed.test"])
    listing = "import re; print(*[int(l.split()[1][9:], 16) for l in open('/proc/net/tcp') if '01004D7F' in l.split()[1] and l.split()[3] == '0A'])"
    ports = sandbox.run("python3 -", stdin=listing).split()
    assert len(ports) >= 2  # those of other stacks beside this one, too
    other = Sandbox(stack, make_box(stack))
    other.set(allow=["other.test"])
    targets = [f"tcp 127.77.0.1 {port}" for port in ports]
    assert other.reaches(*targets) == sandbox.reaches(*targets) == ["EPERM"] * len(ports)
    other.delete()


def test_names_outlive_a_reset_and_a_gateway(stack: Stack, sandbox: Sandbox, net: Cable):
    generation = sandbox.set(allow=["allowed.test"])
    asked = [f"http {NOWHERE} allowed.test", f"http {NOWHERE} other.test"]
    assert sandbox.post("/reset").status_code == 200
    sandbox.run("cat > /tmp/ask.py", stdin=ASK)
    assert sandbox.asks(*asked) == ["http", "403"]
    stack.kill()
    stack.start()
    assert sandbox.policy()["generation"] == generation
    assert sandbox.asks(*asked) == ["http", "403"]
