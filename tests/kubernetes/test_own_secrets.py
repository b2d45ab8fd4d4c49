"""The gateway's second port: HTTPS with HTTP/2 by a Secret of one's own, as docs/install.md has it."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.kubernetes.releases import SMALL, release_of_its_own
from tests.kubernetes.stack import Stack


@pytest.fixture(scope="module")
def encrypted() -> Iterator[Stack]:
    with release_of_its_own("tls", runtime="runc") as stack:
        yield stack


def certificate(directory: Path, *, address: str) -> tuple[Path, Path]:
    """Of nobody's authority but its own."""
    cert, key = directory / "tls.crt", directory / "tls.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=sandlot",
    ]
    command += ["-addext", f"subjectAltName=IP:{address}", "-out", str(cert), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def test_a_secret_with_a_certificate_opens_https_and_the_plain_port_stays(
    encrypted: Stack, tmp_path: Path
) -> None:
    nodes = encrypted.get("nodes", "-l", "!node-role.kubernetes.io/control-plane")["items"]
    address = next(a["address"] for a in nodes[0]["status"]["addresses"] if a["type"] == "InternalIP")
    cert, key = certificate(tmp_path, address=address)
    encrypted.kubectl("create", "namespace", encrypted.namespace)
    named = ("secret", "tls", "certificate", "-n", encrypted.namespace)
    encrypted.kubectl("create", *named, f"--cert={cert}", f"--key={key}")
    # Ready means that the probe over HTTPS was answered.
    encrypted.install(*SMALL, "--set", "gateway.tls.existingSecret=certificate")

    (service,) = [
        each
        for each in encrypted.get("services", "-n", encrypted.namespace)["items"]
        if each["metadata"]["name"].endswith("-gateway")
    ]
    ports = {port["name"]: port["nodePort"] for port in service["spec"]["ports"]}
    trusted = ssl.create_default_context(cafile=str(cert))
    headers = {"Authorization": f"Bearer {encrypted.api_key}"}
    with httpx.Client(http2=True, verify=trusted, headers=headers, timeout=30) as client:
        answer = client.get(f"https://{address}:{ports['https']}/api/v1/sandbox")
        assert (answer.status_code, answer.http_version) == (200, "HTTP/2")
        assert client.get(f"http://{address}:{ports['http']}/api/v1/sandbox").status_code == 200
