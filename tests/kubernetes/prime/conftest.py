"""A release with everything that Prime's clients can use: warm sandboxes of their default size, checkpoints, TCP ports, SSH, TLS, a way out to the client's machine."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from tests.kubernetes.prime.shared_directory import shared_directory
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack
from tests.prime.server import Server

# What a create of the clients asks for when it says nothing but `memory_gb=1`.
DEFAULT = {"image": IMAGE, "cpu": 1, "memory": 1 << 30, "disk": 5 << 30}


@dataclass(frozen=True)
class Authority:
    """Signs the gateways' certificate; no client trusts it by itself."""

    authority: trustme.CA
    file: Path

    def make_secret(self, stack: Stack, name: str) -> None:
        """A Secret with a certificate for the address that clients use."""
        signed = self.authority.issue_cert(stack.node_address)
        chain = b"".join(blob.bytes() for blob in signed.cert_chain_pems)
        make_tls_secret(stack, name, chain=chain, key=signed.private_key_pem.bytes())


def make_tls_secret(stack: Stack, name: str, *, chain: bytes, key: bytes) -> None:
    """A certificate with its key, both PEM, in the release's namespace."""
    data = {"tls.crt": chain, "tls.key": key}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": stack.namespace},
        "data": {each: base64.b64encode(value).decode() for each, value in data.items()},
    }
    stack.kubectl("apply", "-f", "-", stdin=json.dumps(secret))


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = trustme.CA()
    file = tmp_path_factory.mktemp("authority") / "ca.pem"
    made.cert_pem.write_to_path(str(file))
    return Authority(made, file)


@pytest.fixture(scope="session")
def whole(authority: Authority) -> Iterator[Stack]:
    """Under gVisor, with two gateways."""
    with release_of_its_own("prime", runtime="gvisor") as stack, shared_directory(stack, "kept") as claim:
        authority.make_secret(stack, "certificate")
        values = {
            "pools": {"default": {"size": 6, "template": DEFAULT}},
            "gateway.checkpoints.claim": claim,
            "gateway.tcp": {"first": 30040, "ports": 2},
            "gateway.udp": {"first": 30060, "ports": 2},
            "gateway.ssh.port": 30050,
            "gateway.tls.existingSecret": "certificate",
            "networkPolicy.egress.custom": [{"name": "client", "cidrs": [f"{client_host(stack)}/32"]}],
        }
        assignments = ",".join(f"{name}={json.dumps(value)}" for name, value in values.items())
        try:
            stack.install("--set-json", assignments)
            yield stack
        finally:
            stack.uninstall()  # before the directory goes


def server_of(stack: Stack, *, tcp: bool) -> Server:
    return Server(
        tcp=tcp,
        url=stack.url,
        api_key=stack.api_key,
        image=IMAGE,
        log=stack.report,
        script_seconds=600,  # its sandboxes may be cold starts, one after the other
        client_host=client_host(stack),
    )


def client_host(stack: Stack) -> str:
    """This machine's address on the way to the nodes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((stack.node_address, 9))
        return probe.getsockname()[0]
