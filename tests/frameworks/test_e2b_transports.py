"""Each of E2B's unmodified SDKs over plain HTTP and over TLS, by environment variables alone: a command, files, cells."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import issued
from tests.frameworks.conftest import framework_python
from tests.frameworks.test_e2b import javascript_sdks, variables
from tests.ports import free_port
from tests.stack import Stack, private_stack

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
# What a process may have besides: the rest of this machine's environment could hide that something is missing.
KEPT = ("PATH",)
Transports = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def transports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transports]:
    """The variables of users, by transport: one gateway serves both."""
    certificate = issued(tmp_path_factory.mktemp("certificate"), "localhost")
    port = free_port()
    tls = ("--tls-cert", str(certificate.chain), "--tls-key", str(certificate.key), "--tls-port", str(port))
    aliases = "code-interpreter-v1=host,base=host"
    with private_stack("--pool", "warm=2", "--e2b", "--e2b-templates", aliases, *tls) as stack:
        authority = str(certificate.authority)
        trust = {"SSL_CERT_FILE": authority, "NODE_EXTRA_CA_CERTS": authority}
        yield {"plain": _of(stack, stack.url), "tls": {**_of(stack, f"https://localhost:{port}"), **trust}}


def _of(stack: Stack, url: str) -> dict[str, str]:
    return variables(url, "e2b_" + stack.api_key.encode().hex())


transport = pytest.mark.parametrize("transport", ["plain", "tls"])
half = pytest.mark.parametrize("half", ["sync", "async"])


@transport
@half
def test_the_sdk_works(half: str, transport: str, transports: Transports, tmp_path: Path) -> None:
    run_python("e2b", half, transports[transport], tmp_path)


@transport
@half
def test_the_code_interpreter_works(
    half: str, transport: str, transports: Transports, tmp_path: Path
) -> None:
    run_python("e2b-code-interpreter", half, transports[transport], tmp_path)


@transport
@pytest.mark.parametrize("package", ["e2b", "@e2b/code-interpreter"], ids=["sdk", "code-interpreter"])
def test_the_javascript_sdks_work(
    package: str, transport: str, transports: Transports, tmp_path: Path
) -> None:
    (tmp_path / "node_modules").symlink_to(javascript_sdks())
    script = tmp_path / "script.mjs"
    script.write_bytes((HERE / "e2b_transport_script.mjs").read_bytes())
    run(["node", str(script), package], transports[transport], tmp_path)


def run_python(package: str, half: str, environment: dict[str, str], home: Path) -> None:
    script = str(HERE / "e2b_transport_script.py")
    module = package.replace("-", "_")
    run([str(framework_python(package)), "-B", script, module, half], environment, home)


def run(words: list[str], environment: dict[str, str], home: Path) -> None:
    kept = {name: os.environ[name] for name in KEPT}
    done = subprocess.run(
        words,
        env={**kept, "HOME": str(home), **environment},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{environment['E2B_SANDBOX_URL']}: all of it\n"), (
        done.stderr
    )
