"""What a running sandbox may reach, changed in its pod: asked of the cluster's name server, which every sandbox reaches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sandlot import Client, Sandbox

from tests.kubernetes.boxes import namespace, plain_pod, pod_of, pods_exec, until, warm
from tests.kubernetes.network_attacks import UNDO
from tests.kubernetes.stack import IMAGE, Stack

EVERYTHING = {"allowlist": None, "denylist": []}


class Policy:
    """The routes of one sandbox's policy, each call on a connection of its own: to whichever gateway."""

    def __init__(self, stack: Stack, box: Sandbox) -> None:
        self._path = f"{stack.url}/api/v1/sandbox/{box.id}/egress-policy"
        self._headers = {"Authorization": f"Bearer {stack.api_key}"}

    def get(self) -> dict[str, Any]:
        return httpx.get(self._path, headers=self._headers, timeout=60).json()

    def put(self, *, allow: list[str] | None = None, deny: list[str] | None = None) -> httpx.Response:
        body = {"allowlist": allow, "denylist": deny}
        return httpx.put(self._path, headers=self._headers, json=body, timeout=60)


@pytest.fixture
def box(client: Client) -> Iterator[Sandbox]:
    with warm(client) as made:
        yield made


@pytest.fixture
def server(stack: Stack) -> str:
    """The name server's address."""
    return stack.get("service", "kube-dns", "-n", "kube-system")["spec"]["clusterIP"]


# Whether the name server answers over each protocol; it asks no other server for this name.
ASK = r"""
import json, socket, struct, sys
from concurrent.futures import ThreadPoolExecutor
labels = b'kubernetes.default.svc.cluster.local'.split(b'.')
name = b''.join(bytes([len(label)]) + label for label in labels) + bytes(1)
query = struct.pack('!6H', 7, 0x100, 1, 0, 0, 0) + name + struct.pack('!2H', 1, 1)
def connected():
    with socket.create_connection((sys.argv[1], 53), 6) as sock:
        sock.send(struct.pack('!H', len(query)) + query)
        return len(sock.recv(512)) > 0
def sent():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(2)
        sock.connect((sys.argv[1], 53))
        for _ in range(3):  # a datagram may be lost
            sock.send(query)
            try:
                return len(sock.recv(512)) > 0
            except TimeoutError:
                continue
    return False
def ask(way):
    try:
        return way()
    except OSError:
        return False
with ThreadPoolExecutor(2) as both:
    print(json.dumps(list(both.map(ask, [connected, sent]))))
"""


def question(server: str) -> list[str]:
    return ["python3", "-c", ASK, server]


def reached(box: Sandbox, server: str) -> bool:
    """By connections and by datagrams alike."""
    connected, sent = json.loads(box.exec(question(server), timeout=60, check=True).stdout)
    assert connected == sent
    return connected


def test_it_holds_when_it_is_answered(stack: Stack, box: Sandbox, server: str) -> None:
    policy = Policy(stack, box)
    assert policy.get()["policy"] == EVERYTHING
    assert reached(box, server)
    for lists, canonical, still in (
        ({"deny": [f"{server}:53"]}, {"allowlist": None, "denylist": [f"{server}/32:53"]}, False),
        ({"deny": [f"{server}:54"]}, {"allowlist": None, "denylist": [f"{server}/32:54"]}, True),
        ({"allow": []}, {"allowlist": [], "denylist": None}, False),
        ({"allow": [server]}, {"allowlist": [f"{server}/32"], "denylist": None}, True),
        ({"allow": ["192.0.2.0/24"]}, {"allowlist": ["192.0.2.0/24"], "denylist": None}, False),
    ):
        told = policy.put(**lists).json()
        assert (told["policy"], told["applied"]) == (canonical, True), told
        assert reached(box, server) is still
        # Any gateway tells it: the sidecar has it.
        assert [policy.get() for _ in range(6)] == [told] * 6
    pod = pod_of(stack, box)["metadata"]["name"]
    beside = json.loads(pods_exec(stack, pod, question(server)))
    assert beside == [not stack.runtime] * 2, "under runc of the sandbox alone, under gVisor of its pod"
    assert policy.put(deny=[]).json()["generation"] == 7
    assert reached(box, server)


# Answers whoever asks on port 80.
SERVE = r"""
import http.server
class Here(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "5"); self.end_headers(); self.wfile.write(b"here\n")
http.server.HTTPServer(("0.0.0.0", 80), Here).serve_forever()
"""
# What a host says by its name, whatever the address that is connected to.
ASK_HOST = r"""
import http.client, sys
asked = http.client.HTTPConnection(sys.argv[2], 80, timeout=20)
asked.request("GET", "/", headers={"Host": sys.argv[1]})
answer = asked.getresponse()
print(answer.status, answer.read().decode(), end="")
"""


@pytest.fixture
def host(stack: Stack) -> Iterator[tuple[str, str]]:
    """A name in the cluster's DNS and its address, which sandboxes may connect to by the cluster's own policies."""
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", SERVE],
        "securityContext": {"runAsUser": 0},
        "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1},
    }
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "hostname": "web",
        "subdomain": "web",
    }
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    service["spec"] = {"clusterIP": "None", "selector": {"served": "web"}}
    rule = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "to-web"}}
    with namespace(stack, f"{stack.release}-web") as where, plain_pod(stack, where, "web", spec) as address:
        stack.kubectl("label", "pod", "web", "served=web", "-n", where)
        stack.kubectl("apply", "-n", where, "-f", "-", stdin=json.dumps(service))
        to = [{"to": [{"ipBlock": {"cidr": f"{address}/32"}}], "ports": [{"port": 80}]}]
        rule["spec"] = {"podSelector": {}, "policyTypes": ["Egress"], "egress": to}
        stack.kubectl("apply", "-n", stack.sandboxes, "-f", "-", stdin=json.dumps(rule))
        try:
            yield f"web.{where}.svc.cluster.local", address
        finally:
            stack.kubectl("delete", "networkpolicy", "to-web", "-n", stack.sandboxes)


def said(box: Sandbox, name: str, address: str = "192.0.2.1") -> str:
    """Its answer, or why there is none: its policy may not be everywhere yet."""
    result = box.exec(["python3", "-c", ASK_HOST, name, address], timeout=60)
    return result.stdout if result.ok else result.stderr


def test_names_are_read_in_the_connections(stack: Stack, box: Sandbox, host: tuple[str, str]) -> None:
    name, address = host
    refused = "403 sandlot: the sandbox's egress policy does not let {} through\n"
    # In the cluster all addresses are private: a name alone leads to none of them.
    box.set_network(allow=[name, "*.example.org"])
    until(
        lambda: f"but not its address {address}" in said(box, name)
    )  # the cluster's DNS comes to know of it
    box.set_network(allow=[name, f"{address}:80", "*.example.org"])
    until(lambda: said(box, name) == "200 here\n")
    # By the sandbox's own lookup, of which another of the name servers may be asked.
    until(lambda: said(box, name, name) == "200 here\n")
    assert said(box, "example.org") == refused.format("example.org")
    box.set_network(deny=[f"*.{name.partition('.')[2]}"])
    assert said(box, name) == refused.format(name)
    box.set_network(deny=[])
    assert said(box, "whatever", name) == "200 here\n"


def test_no_file_leads_an_allowed_name_elsewhere(stack: Stack, box: Sandbox, host: tuple[str, str]) -> None:
    _, address = host
    until(lambda: said(box, "whatever", address) == "200 here\n")
    for _ in range(2):
        # Any host of the sandbox's choice in place of the one that was allowed.
        box.exec(f"echo '{address} nobody.invalid' >> /etc/hosts", check=True)
        box.exec(f"echo 'nameserver {address}' > /etc/resolv.conf", check=True)
        box.set_network(allow=["nobody.invalid", f"{address}:80"])
        assert said(box, "nobody.invalid").startswith("502")
        box.reset()
        assert "nobody.invalid" not in box.exec("cat /etc/hosts", check=True).stdout
        assert address not in box.exec("cat /etc/resolv.conf", check=True).stdout


def test_a_create_may_say_it(stack: Stack, client: Client, server: str) -> None:
    with warm(client, allow=["example.org"]) as box:
        assert box.info.pool_hit
        assert box.get_network().allow == ("example.org",)
        # Names are asked of the name server, which is therefore in reach.
        assert reached(box, server)
        box.set_network(allow=[])
        assert not reached(box, server)


def test_a_reset_keeps_it_and_no_other_sandbox_has_it(
    stack: Stack, client: Client, box: Sandbox, server: str
) -> None:
    Policy(stack, box).put(allow=[])
    box.reset()
    assert not reached(box, server)
    with warm(client) as other:
        assert reached(other, server)


def test_code_in_the_sandbox_cannot_undo_it(stack: Stack, box: Sandbox, server: str) -> None:
    assert Policy(stack, box).put(allow=[]).status_code == 200
    assert json.loads(box.exec(["python3", "-c", UNDO], timeout=60, check=True).stdout) == []
    assert not reached(box, server)


def test_what_cannot_be_held_is_refused_and_changes_nothing(stack: Stack, box: Sandbox, server: str) -> None:
    if not stack.runtime:
        pytest.skip("under runc as many rules are held as may be asked for")
    policy = Policy(stack, box)
    refused = policy.put(deny=[server, *(f"10.{n}.0.0/16:{n + 1}" for n in range(200))])
    assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, "denylist")
    assert "gVisor accepts 32768 bytes of rules" in refused.json()["detail"]
    assert policy.get()["policy"] == EVERYTHING
    assert reached(box, server)
