"""A release with its operator's Secrets: HTTPS by a certificate; that, API keys and the master key are then replaced."""

from __future__ import annotations

import itertools
import ssl
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from sandlot import Client

from tests import plain_http
from tests.kubernetes.boxes import POOLED, pod_of, until, warm
from tests.kubernetes.key_commands import KeyCommands
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack
from tests.kubernetes.upgrades import LONG, goes_on, once_and_whole, stopped_at_the_end, words

T = TypeVar("T")

KEY, OTHER = "a-key-of-the-tests", "another-key-of-the-tests"
VALUES = {
    "auth.existingApiKeySecret": "keys",
    "gateway.tls.existingSecret": "certificate",
    "controller.replicas": 1,
    "pools": {"default": {"size": 1, "template": {"image": IMAGE, **POOLED}}},
}
_numbers = itertools.count()


@dataclass(frozen=True)
class Own:
    stack: Stack
    certificate: Path

    @property
    def https(self) -> str:
        services = self.stack.get("services", "-n", self.stack.namespace)["items"]
        (service,) = [each for each in services if each["metadata"]["name"].endswith("-gateway")]
        ports = {port["name"]: port["nodePort"] for port in service["spec"]["ports"]}
        return f"https://{self.stack.node_address}:{ports['https']}"

    def set_keys(self, *entries: str) -> None:
        _apply(self.stack, "generic", "keys", f"--from-literal=api-key={chr(10).join(entries)}")

    def set_certificate(self, cert: Path, key: Path) -> None:
        _apply(self.stack, "tls", "certificate", f"--cert={cert}", f"--key={key}")

    def until_mounted(self, read: Callable[[], T]) -> T:
        """Wait for what a changed Secret brings: a change of a pod has its kubelet look at once, not within 1.5 minutes."""
        selector = "app.kubernetes.io/component in (gateway, controller)"

        def looked() -> T:
            mark = f"sandlot.test/looked={next(_numbers)}"
            self.stack.kubectl(
                "annotate", "pods", "-n", self.stack.namespace, "-l", selector, mark, "--overwrite"
            )
            return read()

        return until(looked, seconds=180, pause=1)


def _apply(stack: Stack, kind: str, name: str, *words: str) -> None:
    made = stack.kubectl(
        "create", "secret", kind, name, "-n", stack.namespace, *words, "--dry-run=client", "-o", "yaml"
    )
    stack.kubectl("apply", "-f", "-", stdin=made)


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


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    with release_of_its_own("own", runtime="runc") as stack:
        cert, key = certificate(tmp_path_factory.mktemp("cert"), address=stack.node_address)
        stack.kubectl("create", "namespace", stack.namespace)
        own = Own(stack, cert)
        own.set_certificate(cert, key)
        own.set_keys(f"{KEY}:tests::operate")
        # Ready means that the probe over HTTPS was answered.
        stack.install(*words(VALUES))
        yield own


def served(own: Own, key: str) -> int:
    """The status of an answer on a connection of its own."""
    headers = {"Authorization": f"Bearer {key}"}
    return plain_http.get(f"{own.stack.url}/api/v1/sandbox", headers=headers, timeout=30).status_code


def test_a_secret_with_a_certificate_opens_https_and_the_plain_port_stays(own: Own, tmp_path: Path) -> None:
    """And another one in it is used for new connections, while those that are open go on."""
    trusted = ssl.create_default_context(cafile=str(own.certificate))
    headers = {"Authorization": f"Bearer {KEY}"}
    https = f"{own.https}/api/v1/sandbox"
    kept = httpx.Limits(keepalive_expiry=None)
    with httpx.Client(http2=True, verify=trusted, headers=headers, timeout=30, limits=kept) as client:
        answer = client.get(https)
        assert (answer.status_code, answer.http_version) == (200, "HTTP/2")
        assert client.get(f"{own.stack.url}/api/v1/sandbox").status_code == 200

        cert, key = certificate(tmp_path, address=own.stack.node_address)
        own.set_certificate(cert, key)
        renewed = ssl.create_default_context(cafile=str(cert))

        def everywhere() -> bool:
            """Whether several new connections, which any gateway gets, all have it."""
            try:
                asked = (httpx.get(https, headers=headers, verify=renewed, timeout=60) for _ in range(8))
                return all(answer.is_success for answer in asked)
            except httpx.ConnectError as error:
                assert "CERTIFICATE_VERIFY_FAILED" in str(error)
                return False

        own.until_mounted(everywhere)
        assert client.get(https).status_code == 200, "its connection is of the certificate before"


def test_api_keys_are_added_and_removed_without_a_restart(own: Own) -> None:
    assert served(own, OTHER) == 401
    own.set_keys(f"{KEY}:tests::operate", f"{OTHER}:others")
    own.until_mounted(lambda: all(served(own, OTHER) == 200 for _ in range(8)))
    own.set_keys(f"{KEY}:tests::operate")
    own.until_mounted(lambda: all(served(own, OTHER) == 401 for _ in range(8)))
    assert served(own, KEY) == 200


def test_the_master_key_is_replaced_while_sandboxes_and_commands_run(own: Own, tmp_path: Path) -> None:
    stack, keys = own.stack, KeyCommands(own.stack, tmp_path)
    url = stack.url

    def token(sandbox_id: str) -> str:
        headers = {"Authorization": f"Bearer {KEY}"}
        answer = plain_http.request(
            "POST", f"{url}/api/v1/sandbox/{sandbox_id}/auth", headers=headers, timeout=30
        )
        assert answer.status_code == 200, answer.text
        return answer.json()["token"]

    def exec_with(token: str, sandbox_id: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        call = {"command": "true", "timeout": 20}
        answer = plain_http.request(
            "POST", f"{url}/sbx/{sandbox_id}/exec", headers=headers, json=call, timeout=60
        )
        return answer.status_code

    def all_know(wanted: Callable[[str, set[str]], bool]) -> None:
        """Wait until each gateway and controller has said so."""
        own.until_mounted(
            lambda: (
                (found := keys.known()) and len(found) == 3 and all(wanted(*each) for each in found.values())
            )
        )

    with ThreadPoolExecutor(1) as thread, Client(url=url, api_key=KEY) as client:
        old = warm(client)
        old_token, (first, *rest) = token(old.id), {signing for signing, _ in keys.known().values()}
        assert not rest, "they sign with one key"
        assert keys.unlabelled().strip() == ""
        running = thread.submit(old.exec, LONG, timeout=600)
        with stopped_at_the_end(old):
            until(lambda: old.exec("test -s /count", timeout=30).ok)
            keys.add()
            all_know(lambda signing, others: signing == first and len(others) == 1)
            keys.exchange()
            all_know(lambda signing, others: signing != first and others == {first})
            # New tokens and old ones are good for the sandbox from before, whose command goes on.
            new_token = token(old.id)
            for each in (old_token, new_token):
                assert exec_with(each, old.id) == 200
            its_pod = pod_of(stack, old)["metadata"]["name"]
            until(
                lambda: {pod for pod, key in keys.of_pods().items() if key == first} == {its_pod}, seconds=180
            )
            new = warm(client)
            assert pod_of(stack, new)["metadata"]["labels"]["sandlot.dev/key"] != first
            assert new.exec("echo new", timeout=30).stdout == "new\n"
            goes_on(running)
        once_and_whole(old, running.result(timeout=240))

        keys.remove()
        all_know(lambda signing, others: signing != first and not others)
        for _ in range(8):
            assert exec_with(old_token, old.id) == 401
        assert new.exec("echo still", timeout=30).stdout == "still\n"
