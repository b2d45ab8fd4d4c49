"""What a running sandbox may reach, changed while it runs: real packets to a network namespace of the test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.cable import Cable, cable, serving
from tests.policies import skip_without_egress_policies
from tests.prime_rpc.conftest import make_box
from tests.prime_rpc.support import Box
from tests.probe import PROBE
from tests.stack import Stack, private_stack
from tests.web import ASK, web

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]

EVERYTHING = {"allowlist": None, "denylist": []}
NOTHING = {"allowlist": [], "denylist": None}


@pytest.fixture(scope="module")
def net() -> Iterator[Cable]:
    if os.geteuid() != 0:
        pytest.skip("needs root: a network namespace")
    with (
        cable("h", network=18) as made,
        serving("0.0.0.0", "::", namespace=made.namespace),
        web(made.inside, namespace=made.namespace),
    ):
        yield made


@pytest.fixture(scope="module")
def stack(net: Cable) -> Iterator[Stack]:
    with private_stack(name_server=net.inside) as running:
        yield running


class Sandbox:
    """A sandbox with its policy and what it reaches."""

    def __init__(self, stack: Stack, box: Box) -> None:
        self.id = box.sandbox_id
        self._stack = stack
        self.run("cat > /tmp/probe.py", stdin=PROBE)
        self.run("cat > /tmp/ask.py", stdin=ASK)

    def _request(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._stack.api_key}"}
        return httpx.request(method, self._stack.url + path, headers=headers, timeout=60, **more)

    def run(self, command: str, *, stdin: str = "") -> str:
        body = {"command": command, "stdin": stdin}
        answer = self._request("POST", f"/sbx/{self.id}/exec", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["exit_code"] == 0, answer.text
        return answer.json()["stdout"]

    def reaches(self, *targets: str) -> list[str]:
        """What a new process sees of each `KIND HOST PORT`."""
        return self.run("python3 /tmp/probe.py", stdin="".join(f"{each}\n" for each in targets)).split()

    def asks(self, *questions: str) -> list[str]:
        """What a new process gets for each `http|tls ADDRESS NAME`."""
        return self.run("python3 /tmp/ask.py", stdin="".join(f"{each}\n" for each in questions)).split()

    def put(self, policy: dict[str, Any]) -> httpx.Response:
        return self._request("PUT", f"/api/v1/sandbox/{self.id}/egress-policy", json=policy)

    def set(self, *, allow: list[str] | None = None, deny: list[str] | None = None) -> int:
        """Its generation, once it is applied."""
        answer = self.put({"allowlist": allow, "denylist": deny})
        skip_without_egress_policies()
        told = answer.json()
        assert (answer.status_code, told["applied"]) == (200, True), answer.text
        assert told["applied_generation"] == told["generation"]
        return told["generation"]

    def policy(self) -> dict[str, Any]:
        return self._request("GET", f"/api/v1/sandbox/{self.id}/egress-policy").json()

    def post(self, path: str) -> httpx.Response:
        return self._request("POST", f"/api/v1/sandbox/{self.id}{path}")

    def delete(self) -> None:
        self._request("DELETE", f"/api/v1/sandbox/{self.id}")


@pytest.fixture
def sandbox(stack: Stack) -> Iterator[Sandbox]:
    made = Sandbox(stack, make_box(stack))
    yield made
    made.delete()


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
        f"s = socket.create_connection(('{net.inside}', 7001)); s.settimeout(1)\n"
        "s.sendall(b'one'); print(s.recv(9).decode(), flush=True); open('/tmp/joined', 'w')\n"
        "while not os.path.exists('/tmp/again'): time.sleep(0.02)\n"
        "s.sendall(b'two')\n"
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


def test_other_sandboxes_are_not_held(stack: Stack, sandbox: Sandbox, net: Cable):
    other = Sandbox(stack, make_box(stack))
    sandbox.set(allow=[])
    assert other.reaches(f"tcp {net.inside} 7001") == ["hi"]
    assert other.policy()["policy"] == EVERYTHING
    other.delete()


def test_no_socket_goes_round_it(sandbox: Sandbox):
    for kind in ("socket.AF_PACKET, socket.SOCK_RAW", "socket.AF_INET, socket.SOCK_RAW, 1"):
        script = f"import socket\ntry: socket.socket({kind})\nexcept PermissionError: print('refused')"
        assert sandbox.run("python3 -", stdin=script) == "refused\n"


def test_it_outlives_a_reset_and_a_gateway_and_not_its_sandbox(stack: Stack, sandbox: Sandbox, net: Cable):
    target = f"tcp {net.inside} 7001"
    generation = sandbox.set(deny=[net.inside])
    assert sandbox.post("/reset").status_code == 200
    sandbox.run("cat > /tmp/probe.py", stdin=PROBE)
    assert sandbox.reaches(target) == ["EPERM"]
    stack.kill()
    stack.start()
    told = sandbox.policy()
    expected = {"allowlist": None, "denylist": [f"{net.inside}/32"]}
    assert (told["policy"], told["generation"], told["applied"]) == (expected, generation, True)
    assert sandbox.reaches(target) == ["EPERM"]
    sandbox.delete()
    later = Sandbox(stack, make_box(stack))
    assert later.reaches(target) == ["hi"]
    assert later.policy()["generation"] == 1
    later.delete()


def test_what_is_asked_for_is_told_canonically_and_only_a_change_counts(sandbox: Sandbox):
    assert sandbox.set(deny=[]) == 1
    assert sandbox.set(deny=["10.0.0.1", "10.1.0.0/16:443", "10.0.0.1/32", "192.0.2.1:80-90"]) == 2
    assert sandbox.set(deny=["10.0.0.1/32", "10.1.0.0/16:443-443", "192.0.2.1/32:80-90"]) == 2
    assert sandbox.policy()["policy"]["denylist"] == ["10.0.0.1/32", "10.1.0.0/16:443", "192.0.2.1/32:80-90"]
    assert sandbox.set(allow=["Example.ORG.", "*.Bücher.example:443", "example.org"]) == 3
    assert sandbox.policy()["policy"]["allowlist"] == ["example.org", "*.xn--bcher-kva.example:443"]


def test_a_policy_of_the_create_holds_from_the_first_command_on(stack: Stack, net: Cable):
    # The command of the start is held too.
    start = f"python3 -c \"import socket; socket.create_connection(('{net.inside}', 7001))\" 2> /tmp/said; touch /tmp/done"
    more = {"network_allowlist": ["allowed.test", f"{net.inside}:7002"], "start_command": start}
    box = Sandbox(stack, make_box(stack, **more))
    assert box.policy()["policy"] == {
        "allowlist": ["allowed.test", f"{net.inside}/32:7002"],
        "denylist": None,
    }
    assert (box.policy()["generation"], box.policy()["applied"]) == (1, True)
    box.run("until [ -e /tmp/done ]; do sleep 0.02; done")
    assert "PermissionError" in box.run("cat /tmp/said")
    assert box.reaches(f"tcp {net.inside} 7001", f"tcp {net.inside} 7002") == ["EPERM", "hi"]
    assert box.asks(f"http {NOWHERE} allowed.test", f"http {NOWHERE} other.test") == ["http", "403"]
    assert box.set(allow=[]) == 2
    box.delete()
    later = Sandbox(stack, make_box(stack))
    assert later.reaches(f"tcp {net.inside} 7001") == ["hi"]
    later.delete()


# Of an address that is nowhere: a connection that is read leads where its name is.
NOWHERE = "192.0.2.1"


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
        f"asked = http.client.HTTPConnection('{NOWHERE}', 80, timeout=20)\n"
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
        f"s = socket.create_connection(('{NOWHERE}', 80)); s.settimeout(5)\n"
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


def test_a_thousand_entries_are_held(sandbox: Sandbox, net: Cable):
    entries = [f"10.{n // 256}.{n % 256}.0/24:{n + 1}-{n + 2}" for n in range(1023)]
    sandbox.set(deny=[*entries, f"{net.inside}:7001"])
    assert sandbox.reaches(f"tcp {net.inside} 7001", f"tcp {net.inside} 7002") == ["EPERM", "hi"]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"allowlist": ["example.org:8080"]}, "of a host the port is 80 or 443"),
        ({"denylist": ["example.org:80-443"]}, "of a host the port is 80 or 443"),
        ({"denylist": ["https://example.org"]}, "the port is a number"),
        ({"denylist": ["example.org/path"]}, "is none of these"),
        ({"denylist": ["example..org"]}, "no name of a host"),
        ({"denylist": ["*"]}, "is none of these"),
        ({"denylist": ["a.*.org"]}, "is none of these"),
        ({"denylist": ["10.0.0.1/8"]}, "no IPv4 address or network"),
        ({"denylist": ["10.0.0.256"]}, "no IPv4 address or network"),
        ({"denylist": ["10.0.0.1:0"]}, "ports are 1 to 65535"),
        ({"denylist": ["10.0.0.1:9-8"]}, "ports are 1 to 65535"),
        ({"denylist": ["10.0.0.1:http"]}, "the port is a number"),
        ({"denylist": ["::1"]}, "IPv6"),
        ({"denylist": [""]}, "is none of these"),
    ],
)
def test_what_cannot_be_held_is_refused_and_changes_nothing(
    sandbox: Sandbox, policy: dict[str, Any], words: str
):
    answer = sandbox.put(policy)
    (field,) = policy
    assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, f"{field}.0")
    assert words in answer.json()["detail"]
    assert sandbox.policy()["policy"] == EVERYTHING


def test_a_sandbox_without_a_network_gets_none(stack: Stack):
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    body = {"docker_image": "host", "network": "none"}
    box = httpx.post(f"{stack.url}/api/v1/sandbox", headers=headers, json=body, timeout=60).json()
    path = f"{stack.url}/api/v1/sandbox/{box['id']}"
    same, refused = (
        httpx.put(f"{path}/egress-policy", headers=headers, json=policy) for policy in (NOTHING, EVERYTHING)
    )
    assert same.json()["generation"] == 1
    assert (refused.status_code, "created with the network 'none'" in refused.text) == (422, True)
    httpx.delete(path, headers=headers)
