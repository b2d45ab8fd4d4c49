"""The unmodified E2B SDK against a gateway that serves its wire, by environment variables alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.certificates import Certificate, issued
from tests.frameworks.conftest import framework_python
from tests.frameworks.listed import all_listed, npm_modules
from tests.ports import free_port
from tests.prime.environments import NEWEST_IN, EnvironmentFailed
from tests.prime.not_installed import not_installed
from tests.prime.server import Server
from tests.prime.trust import trusting
from tests.stack import Stack, private_stack

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.timeout(900)]

Run = Callable[..., str]
HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "e2b.md"
PORTS_PAGE = PAGE.with_name("e2b-ports.md")
CODE_PAGE = PAGE.with_name("e2b-code-interpreter.md")
DOMAIN = "e2b.test"
(JAVASCRIPT,) = [framework.npm for framework in all_listed() if framework.package == "e2b-javascript"]


@dataclass(frozen=True)
class Secure:
    url: str
    certificate: Certificate


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Secure:
    certificate = issued(tmp_path_factory.mktemp("certificate"), "localhost", f"*.{DOMAIN}")
    return Secure(f"https://localhost:{free_port()}", certificate)


@pytest.fixture(scope="module")
def stack(secure: Secure) -> Iterator[Stack]:
    tls = ("--tls-cert", str(secure.certificate.chain), "--tls-key", str(secure.certificate.key))
    port = ("--tls-port", secure.url.rpartition(":")[2])
    e2b = ("--e2b", "--e2b-domain", DOMAIN, "--e2b-templates", "code-interpreter-v1=host,base=host")
    with private_stack("--pool", "warm=2", *e2b, *tls, *port) as running:
        yield running


def variables(url: str, api_key: str) -> dict[str, str]:
    return {"E2B_API_KEY": api_key, "E2B_API_URL": f"{url}/e2b", "E2B_SANDBOX_URL": f"{url}/e2b"}


def test_every_method_that_is_built_works(server: Server, run_framework: Run) -> None:
    environment = variables(server.url, server.api_key)
    assert run_framework("e2b", str(HERE / "e2b_script.py"), environment=environment) == "all of it\n"


def test_the_asynchronous_half_works_over_http_2(
    server: Server, secure: Secure, run_framework: Run, tmp_path: Path
) -> None:
    trust = trusting(framework_python("e2b"), authority=secure.certificate.authority, directory=tmp_path)
    environment = {**variables(secure.url, server.api_key), **trust}
    assert run_framework("e2b", str(HERE / "e2b_async_script.py"), environment=environment) == "all of it\n"


def test_an_earlier_sdk_works_with_the_key_in_the_form_that_it_wants(
    server: Server, run_framework: Run
) -> None:
    environment = variables(server.url, "e2b_" + server.api_key.encode().hex())
    script = str(HERE / "e2b_script.py")
    assert run_framework("e2b", script, "old", oldest=True, environment=environment) == "all of it\n"


@pytest.mark.parametrize("name", ["e2b_script.mjs", "e2b_code_script.mjs"])
def test_the_javascript_sdks_work(name: str, server: Server, tmp_path: Path) -> None:
    assert run_javascript((HERE / name).read_text(), server, tmp_path) == "all of it\n"


def run_javascript(text: str, server: Server, directory: Path) -> str:
    """Run a script with the SDKs in an empty directory; return what it printed. A failure shows its errors."""
    (directory / "node_modules").symlink_to(javascript_sdks())
    script = directory / "script.mjs"
    script.write_text(text)
    key = "e2b_" + server.api_key.encode().hex()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "SANDLOT_SCRIPT_IMAGE": server.image,
        **variables(server.url, key),
    }
    done = subprocess.run(
        ["node", str(script)], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr + server.log()[-2000:]
    return done.stdout


def javascript_sdks() -> Path:
    """The modules of the SDKs, installed once; skips the test without Node.js, ends it where no registry answers."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    if newest := os.environ.get(NEWEST_IN):
        return Path(newest) / "e2b-javascript" / "node_modules"
    try:
        return npm_modules(JAVASCRIPT)
    except EnvironmentFailed as error:
        not_installed("E2B's JavaScript SDKs", error)


def test_the_example_of_the_page_works(server: Server, run_framework: Run) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    environment = variables(server.url, server.api_key)
    assert run_framework("e2b", "-c", example, environment=environment) == "42\n\n"


def test_the_javascript_example_of_the_page_works(server: Server, tmp_path: Path) -> None:
    (example,) = re.findall(r"```javascript\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert run_javascript(f"{example}\nprocess.exit(0)", server, tmp_path) == "42\n\n"


def test_the_example_of_the_ports_page_works(
    server: Server, secure: Secure, run_framework: Run, tmp_path: Path
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PORTS_PAGE.read_text(), re.DOTALL)
    example = example.replace("8017", str(free_port()))
    trust = trusting(framework_python("e2b"), authority=secure.certificate.authority, directory=tmp_path)
    environment = {**variables(server.url, server.api_key), **trust}
    here = f"""
import socket
asked = socket.getaddrinfo
def getaddrinfo(host, port, *rest, **more):
    "The name server and the port 443 of an installation."
    found = ("localhost", {secure.url.rpartition(":")[2]}) if str(host).endswith(".{DOMAIN}") else (host, port)
    return asked(*found, *rest, **more)
socket.getaddrinfo = getaddrinfo
"""
    assert run_framework("e2b", "-c", here + example, environment=environment) == "from the sandbox\n"


@pytest.mark.parametrize("half", ["sync", "async"])
def test_the_code_interpreters_sdk_works(half: str, server: Server, run_framework: Run) -> None:
    environment = variables(server.url, server.api_key)
    script = str(HERE / "e2b_code_script.py")
    assert run_framework("e2b-code-interpreter", script, half, environment=environment) == "all of it\n"


def test_the_example_of_the_code_interpreters_page_works(server: Server, run_framework: Run) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", CODE_PAGE.read_text(), re.DOTALL)
    environment = variables(server.url, server.api_key)
    shown = run_framework("e2b-code-interpreter", "-c", example, environment=environment)
    assert shown.splitlines() == ["42", "ZeroDivisionError"]
