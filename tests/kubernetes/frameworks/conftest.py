"""A release under gVisor for the suites of frameworks, whole, and so only with $SANDLOT_WHOLE_SUITES: E2B's wire, checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.certificates import Certificate, issued
from tests.frameworks.conftest import run_framework, run_suite, sdk_path
from tests.frameworks.e2b_installation import Installation
from tests.frameworks.test_e2b import DOMAIN
from tests.frameworks.test_e2b_methods import BASES
from tests.kubernetes.frameworks import tools_image
from tests.kubernetes.frameworks.e2b_names import named
from tests.kubernetes.frameworks.peers import ADDRESSES, peers
from tests.kubernetes.prime.conftest import DEFAULT, make_tls_secret, server_of
from tests.kubernetes.prime.shared_directory import shared_directory
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack
from tests.prime.environments import WHOLE
from tests.prime.server import Server

__all__ = ["run_framework", "run_suite", "sdk_path"]

# Of aliases of one image, SDKs are told the last.
TEMPLATES = (*BASES, "python:3.12-slim", "base")
SECRET = "certificate"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return issued(tmp_path_factory.mktemp("certificate"), f"api.{DOMAIN}", f"*.{DOMAIN}")


@pytest.fixture(scope="session")
def whole(certificate: Certificate) -> Iterator[Stack]:
    """With one gateway: frameworks' scripts know where their files are by then."""
    if WHOLE not in os.environ:
        pytest.skip("long: `make test-frameworks-cluster` runs these")
    with (
        release_of_its_own("frameworks", runtime="gvisor") as stack,
        shared_directory(stack, "frameworks") as claim,
        peers(),
    ):
        tools = tools_image.on_every_node()
        make_tls_secret(stack, SECRET, chain=certificate.chain.read_bytes(), key=certificate.key.read_bytes())
        values = {
            "pools": {
                "default": {"size": 4, "template": DEFAULT},
                "tools": {"size": 2, "template": {**DEFAULT, "image": tools}},
            },
            "gateway.replicas": 1,
            "gateway.checkpoints.claim": claim,
            "gateway.tls.existingSecret": SECRET,
            "gateway.e2b.enabled": True,
            "gateway.e2b.domain": DOMAIN,  # scripts ask for the names of ports, which no name server knows
            "gateway.e2b.templates": [
                f"code-interpreter-v1={tools}",
                *(f"{name}={IMAGE}" for name in TEMPLATES),
            ],
            "networkPolicy.egress.custom": [
                {"name": "peers", "cidrs": [f"{address}/32" for address in ADDRESSES]}
            ],
        }
        assignments = ",".join(f"{name}={json.dumps(value)}" for name, value in values.items())
        try:
            stack.install("--set-json", assignments)
            yield stack
        finally:
            stack.uninstall()  # before the directory goes


@pytest.fixture(scope="module")
def server(whole: Stack) -> Server:
    return server_of(whole, tcp=False)


@pytest.fixture(scope="module")
def installed(whole: Stack, certificate: Certificate) -> Iterator[Installation]:
    with named(whole, certificate) as made:
        yield made
