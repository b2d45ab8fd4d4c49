"""A real etcd and kube-apiserver on loopback, with certificates and tokens made for the occasion and nothing behind.

The fixture `apiserver` is one for the whole session, whoever imports it. Nothing in it runs a pod: tests play
the kubelet by writing a pod's status.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sandlot_kube.access import Access

from tests.leaks import session_servers
from tests.ports import free_ports
from tests.stopped import stopped
from tests.waiting import wait_until

_START_SECONDS = 200.0
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "None", "resources": [{"group": "coordination.k8s.io"}]},
        {"level": "None", "users": ["admin"]},
        {"level": "Metadata"},
    ],
}


def binary(name: str) -> Path | None:
    """A program of the test cluster: of $SANDLOT_CLUSTER_BIN, else of its cache."""
    given = os.environ.get("SANDLOT_CLUSTER_BIN")
    path = (Path(given) if given else Path.home() / ".cache/sandlot-cluster/bin") / name
    return path if os.access(path, os.X_OK) else None


def why_not() -> str | None:
    """Why there can be no API server here."""
    missing = [name for name in ("etcd", "kube-apiserver") if binary(name) is None]
    if missing:
        return f"needs {' and '.join(missing)} of the test cluster (`make cluster` builds them)"
    return None if shutil.which("openssl") else "needs openssl, for a throw-away key"


class ApiServer:
    """Both processes. `stop`, `start` and `frozen` are of the API server alone: etcd stays."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.token = secrets.token_hex(16)  # of a user who may do everything
        self.port, self._etcd_port, self._peer_port = free_ports(3)
        self._etcd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        key = directory / "service-accounts.key"
        subprocess.run(
            ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(key)],
            check=True,
            capture_output=True,
        )
        self._key = key
        self._tokens = directory / "tokens.csv"
        self.tokens = {
            name: secrets.token_hex(16) for name in ("gateway", "controller")
        }  # told apart in audits
        users = {"admin": self.token, **self.tokens}.items()
        self._tokens.write_text("".join(f'{token},{name},{name},"system:masters"\n' for name, token in users))
        self._audit = directory / "audit.log"
        (directory / "audit.json").write_text(json.dumps(_AUDIT_POLICY))

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        """The self-signed certificate that the API server makes at its first start."""
        return self.directory / "certs" / "apiserver.crt"

    def access(self, *, namespace: str = "default", token: str | None = None) -> Access:
        context = ssl.create_default_context(cafile=str(self.ca))
        return Access(self.url, context, token=token or self.token, namespace=namespace)

    def kubeconfig(self, path: Path, *, namespace: str = "default", token: str | None = None) -> Path:
        """Written for the context `test`; JSON, which is YAML too."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {"name": "test", "cluster": {"server": self.url, "certificate-authority": str(self.ca)}}
            ],
            "users": [{"name": "test", "user": {"token": token or self.token}}],
            "contexts": [
                {"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}
            ],
        }
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return path

    def call(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """One request of the test's own, as the user who may do everything. Raises urllib.error.HTTPError.

        Sent again while the answer is 429: a resource whose definition has changed is away for a second.
        """
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": content_type},
        )
        context = ssl.create_default_context(cafile=str(self.ca))
        deadline = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 429 or time.monotonic() > deadline:
                    raise
                time.sleep(float(error.headers.get("Retry-After", 1)))

    def namespace(self, prefix: str = "test") -> str:
        """A new one, so that tests do not see each other's objects."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    def apply_crd(self, crd: dict[str, Any]) -> None:
        """Create a CustomResourceDefinition, if it is not there, and wait until it is served."""
        collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        name = crd["metadata"]["name"]
        try:
            self.call("POST", collection, crd)
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise AssertionError(f"{name}: {error.read().decode()}") from error
        spec = crd["spec"]
        served = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        wait_until(lambda: self._answers(served), what=f"{name} is served")

    def writes(self, user: str, *, namespace: str) -> list[tuple[str, str]]:
        """What it has written there, in order: verb, and resource with subresource; without Leases and sums of usage."""
        events = [json.loads(line) for line in self._audit.read_text().splitlines()]
        return [
            (event["verb"], "/".join(filter(None, (ref["resource"], ref.get("subresource")))))
            for event in events
            if event["user"]["username"] == user
            and (ref := event["objectRef"]).get("namespace") == namespace
            and ref["resource"] != "configmaps"
        ]

    # Processes.

    def start_etcd(self) -> None:
        url, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._etcd = self._spawn(
            "etcd",
            *("--data-dir", str(self.directory / "etcd"), "--unsafe-no-fsync"),
            *("--listen-client-urls", url, "--advertise-client-urls", url),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
        )

    def start(self) -> None:
        """Returns when it is ready."""
        assert self._server is None, "it runs already"
        self._server = self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self.port}",
            *("--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"),
            f"--cert-dir={self.directory / 'certs'}",
            f"--token-auth-file={self._tokens}",
            *(
                "--authorization-mode=RBAC",
                "--allow-privileged=true",
                "--disable-admission-plugins=ServiceAccount",
            ),
            *(f"--service-account-key-file={self._key}", f"--service-account-signing-key-file={self._key}"),
            *(
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-cluster-ip-range=10.96.0.0/24",
            ),
            *(f"--audit-policy-file={self.directory / 'audit.json'}", f"--audit-log-path={self._audit}"),
        )
        wait_until(self._ready, what="the API server is ready", seconds=_START_SECONDS)

    def stop(self) -> None:
        """As in a crash."""
        _end(self._server, signal.SIGKILL)
        self._server = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """For the block it keeps its connections and says nothing more."""
        assert self._server is not None
        with stopped(self._server.pid):
            yield

    @property
    def running(self) -> bool:
        return self._server is not None

    def close(self) -> None:
        self.stop()
        _end(self._etcd, signal.SIGKILL)
        self._etcd = None

    def _ready(self) -> bool:
        if self._server is not None and self._server.poll() is not None:
            log = (self.directory / "kube-apiserver.log").read_text(errors="replace")
            raise AssertionError(f"the API server ended with {self._server.returncode}: {log[-3000:]}")
        return self.ca.exists() and self._answers("/readyz", raw=True)

    def _answers(self, path: str, *, raw: bool = False) -> bool:
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})
        try:
            context = ssl.create_default_context(cafile=str(self.ca))
            with urllib.request.urlopen(request, timeout=5, context=context) as answer:
                body = answer.read()
                return body == b"ok" if raw else True
        except (OSError, urllib.error.HTTPError):
            return False

    def _spawn(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        program = binary(name)
        assert program is not None
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        session_servers.add(process.pid)
        return process


_shared: list[ApiServer] = []
_users = 0


@pytest.fixture(scope="session")
def apiserver() -> Iterator[ApiServer]:
    """Skips where the programs are missing. Each conftest that imports this shares the one server."""
    global _users
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    if not _shared:
        server = ApiServer(Path(tempfile.mkdtemp(prefix="sandlot-apiserver-")))
        try:
            server.start_etcd()
            server.start()
        except BaseException:
            server.close()
            shutil.rmtree(server.directory, ignore_errors=True)
            raise
        _shared.append(server)
    _users += 1
    yield _shared[0]
    _users -= 1
    if not _users:
        server = _shared.pop()
        server.close()
        shutil.rmtree(server.directory, ignore_errors=True)


def _end(process: subprocess.Popen[bytes] | None, number: int) -> None:
    if process is None:
        return
    if process.poll() is None:
        process.send_signal(number)
        process.wait()
    session_servers.discard(process.pid)
