"""What a sandbox reaches over the network, and what of it by a rule that was switched on by name.

Beside the cluster's own addresses there are listeners where a cloud has its metadata and the internet its hosts:
a pod puts these addresses on its node's loopback for the time of the test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from sandlot import Client, Sandbox

from tests.kubernetes.boxes import namespace, plain_pod, running_pod, until, warm
from tests.kubernetes.network_attacks import CONNECT
from tests.kubernetes.stack import IMAGE, Stack

METADATA, PUBLIC, INDEX = "169.254.169.254", "203.0.113.7", "151.101.0.223"
PORTS = {METADATA: 80, PUBLIC: 80, INDEX: 443}

# Puts addresses on the loopback under names of their own, listens there, and takes them away at the end.
NODE = r"""
import fcntl, json, signal, socket, struct, sys
SIOCSIFADDR, SIOCSIFFLAGS = 0x8916, 0x8914
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listening = []
def end(*_):
    for number in range(len(addresses)):
        name = b'lo:%d' % (number + 70)
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack('16sH14x', name, 0))
    sys.exit(0)
addresses = json.loads(sys.argv[1])
signal.signal(signal.SIGTERM, end)
for number, (address, port) in enumerate(addresses.items()):
    request = struct.pack('16sHH4s8x', b'lo:%d' % (number + 70), socket.AF_INET, 0, socket.inet_aton(address))
    fcntl.ioctl(control, SIOCSIFADDR, request)
    listening.append(socket.create_server((address, port), backlog=100))
open('/tmp/ready', 'w').close()
while True:
    signal.pause()
"""
LISTEN = r"""
import signal, socket
servers = [socket.create_server(('0.0.0.0', port), backlog=100) for port in (8080, 8081)]
open('/tmp/ready', 'w').close()
signal.sigwait([signal.SIGTERM])
"""
SERVE = "import signal, socket; keep = socket.create_server(('0.0.0.0', 9000)); signal.pause()"
HERE = json.dumps({"here": ("127.0.0.1", 9000)})
READY = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}


@dataclass(frozen=True)
class Field:
    """A sandbox, and all that it may try to reach from where it is."""

    stack: Stack
    box: Sandbox
    elsewhere: str  # a namespace
    control: str  # in it, a pod on the same node that no policy holds back
    targets: dict[str, tuple[str, int]]

    def reached(self, targets: dict[str, tuple[str, int]] | None = None) -> set[str]:
        """By the sandbox."""
        words = ["python3", "-c", CONNECT, json.dumps(targets or self.targets)]
        return self._yes(self.box.exec(words, timeout=120, check=True).stdout)

    def reached_by_others(self) -> set[str]:
        program = ("python3", "-c", CONNECT, json.dumps(self.targets))
        return self._yes(self.stack.kubectl("exec", self.control, "-n", self.elsewhere, "--", *program))

    def _yes(self, text: str) -> set[str]:
        return {name for name, taken in json.loads(text).items() if taken}


def container(program: str, *arguments: str) -> dict[str, object]:
    command = ["python3", "-c", program, *arguments]
    return {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": command,
        "readinessProbe": READY,
    }


@pytest.fixture(scope="module")
def field(stack: Stack, client: Client) -> Iterator[Field]:
    with ExitStack() as all_of_it:
        box = all_of_it.enter_context(warm(client))
        other = all_of_it.enter_context(warm(client))
        node = running_pod(stack, box)["spec"]["nodeName"]
        elsewhere = all_of_it.enter_context(namespace(stack, f"{stack.release}-elsewhere"))
        quick = {"nodeName": node, "terminationGracePeriodSeconds": 5}
        privileged = {**container(NODE, json.dumps(PORTS)), "securityContext": {"privileged": True}}
        host = {**quick, "hostNetwork": True, "containers": [privileged]}
        all_of_it.enter_context(plain_pod(stack, elsewhere, "on-the-node", host))
        peer = {**quick, "containers": [container(LISTEN)]}
        address = all_of_it.enter_context(plain_pod(stack, elsewhere, "peer", peer))
        other.start(["python3", "-c", SERVE], detach=True)
        until(lambda: other.exec(["python3", "-c", CONNECT, HERE], timeout=30).stdout == '{"here": true}\n')
        others = running_pod(stack, other)["status"]["podIP"]
        yield Field(stack, box, elsewhere, "peer", targets_of(stack, peer=address, other=others, node=node))


def targets_of(stack: Stack, *, peer: str, other: str, node: str) -> dict[str, tuple[str, int]]:
    api = stack.get("service", "kubernetes", "-n", "default")["spec"]["clusterIP"]
    slices = stack.get("endpointslices", "-n", "default", "-l", "kubernetes.io/service-name=kubernetes")
    endpoint = slices["items"][0]["endpoints"][0]["addresses"][0]
    addresses = stack.get("node", node)["status"]["addresses"]
    of_node = next(each["address"] for each in addresses if each["type"] == "InternalIP")
    pods = stack.get("pods", "-n", stack.namespace, "-l", "app.kubernetes.io/name=sandlot")["items"]
    by = {each["metadata"]["labels"]["app.kubernetes.io/component"]: each["status"]["podIP"] for each in pods}
    dns = stack.get("service", "kube-dns", "-n", "kube-system")["spec"]["clusterIP"]
    return {
        "API server": (api, 443),
        "API server by its own address": (endpoint, 6443),
        "kubelet": (of_node, 10250),
        "metadata": (METADATA, PORTS[METADATA]),
        "a public host": (PUBLIC, PORTS[PUBLIC]),
        "the package index": (INDEX, PORTS[INDEX]),
        "another sandbox": (other, 9000),
        "another sandbox's sidecar": (other, 8700),
        "controller": (by["controller"], 8080),
        "a pod": (peer, 8080),
        "a pod's other port": (peer, 8081),
        "gateway, where sidecars report": (by["gateway"], 8641),
        "gateway": (by["gateway"], 8642),
        "DNS": (dns, 53),
    }


ALWAYS = {"gateway, where sidecars report", "DNS"}
WITH_RULES = {
    "internet": ({"internet": True}, {"a public host", "the package index"}),
    "pypi": ({"pypi": True}, {"the package index"}),
}


def test_what_is_there_is_reached_by_others(field: Field) -> None:
    """Else a sandbox that reaches nothing would show nothing."""
    walled_in = {"another sandbox", "another sandbox's sidecar", "gateway, where sidecars report"}
    assert field.reached_by_others() == set(field.targets) - walled_in


def test_by_default_only_gateway_and_dns_are_reached(field: Field) -> None:
    assert field.reached() == ALWAYS


def test_the_gateway_takes_nothing_from_who_has_no_key(field: Field) -> None:
    """A sandbox reaches it because its sidecar must."""
    host, port = field.targets["gateway, where sidecars report"]
    for method, path, expected in (
        ("GET", "/api/v1/sandbox", 404),
        ("POST", "/api/v1/sandbox", 404),
        ("DELETE", f"/api/v1/sandbox/{field.box.id}", 404),
        ("POST", f"/sbx/{field.box.id}/exec", 404),
        ("GET", "/metrics", 404),
        ("POST", "/internal/sidecar", 401),
    ):
        code = (
            "import http.client, sys\n"
            f"link = http.client.HTTPConnection({host!r}, {port}, timeout=30)\n"
            f"link.request({method!r}, {path!r}, body=b'{{}}', headers={{'X-Sandlot-Instance': 'i-0123456789abcdef',"
            " 'X-Sandlot-Signature': 'sha256=' + '0' * 64, 'Content-Type': 'application/json',"
            " 'Authorization': 'Bearer guess'})\n"
            "print(link.getresponse().status)"
        )
        result = field.box.exec(["python3", "-c", code], timeout=60, check=True)
        assert int(result.stdout) == expected, (method, path)


@pytest.mark.parametrize("stack", ["gvisor"], indirect=True)
@pytest.mark.parametrize("rule", ["internet", "pypi", "custom"])
def test_a_rule_switched_on_by_name_opens_what_it_says(field: Field, rule: str) -> None:
    """For sandboxes that run too; and off again, all is closed again."""
    if rule == "custom":
        custom = [{"name": "mirror", "cidrs": [f"{field.targets['a pod'][0]}/32"], "ports": [8080]}]
        values, opened = {"custom": custom}, {"a pod"}
    else:
        values, opened = WITH_RULES[rule]
    try:
        field.stack.install("--set-json", f"networkPolicy.egress={json.dumps(values)}")
        until(lambda: field.reached() == ALWAYS | opened)
    finally:
        field.stack.install()
    until(lambda: field.reached() == ALWAYS)
