"""Registries of the tests: one that anybody may write to, one with the same images that asks for a password."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cluster.paths import BIN
from tests.ports import free_ports
from tests.waiting import wait_until

USER, PASSWORD = "puller", "a pull secret"
# bcrypt of PASSWORD, which is all that the registry accepts.
_HTPASSWD = f"{USER}:$2b$04$gH/ZbjMu6khcPjofsEfYzO47jDOqtGXxIUbfvxMRec.j5uK0N8aZu\n"
OPEN, PRIVATE, DEAD = "open.example", "private.example", "dead.example"

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Files by path: their bytes, or None for a directory."""

    files: Mapping[str, bytes | None]

    def archive(self) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for path, data in self.files.items():
                info = tarfile.TarInfo(path)
                if data is None:
                    info.type, info.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(info)
                else:
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        return out.getvalue()


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A layer as it is pushed. `diff_id`: the digest of what is compressed."""

    blob: bytes
    diff_id: str
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TestImage:
    """An image to push."""

    __test__ = False

    layers: Sequence[Layer]
    config: Mapping[str, Any] = field(default_factory=dict)
    architecture: str = "amd64"


BASE = Layer(files={"bin": None, "bin/tool": b"a tool", "etc": None, "etc/base": b"base", "gone": b"soon"})


def labelled(text: str, *, architecture: str = "amd64") -> TestImage:
    """An image of two layers, of which the second replaces and removes files of the first."""
    top = Layer(files={"etc/name": text.encode(), "bin/tool": b"a newer tool", ".wh.gone": b""})
    return TestImage(
        layers=[BASE, top],
        architecture=architecture,
        config={
            "Env": ["PATH=/bin", "EMPTY=", "WITH=a=b"],
            "WorkingDir": "/etc",
            "User": "1000:1000",
            "Entrypoint": ["/bin/tool"],
            "Cmd": ["--help"],
            "StopSignal": "SIGINT",
        },
    )


@dataclass
class Registries:
    """Both registries. `names` are as in references; nodes find them by their hosts.toml files in `certs`."""

    port: int
    private_port: int
    certs: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def push(self, name: str, image: TestImage, *, tag: str = "1") -> str:
        """Push, and return the manifest's digest."""
        digest, data = self._upload(name, image)
        self._put_manifest(name, tag, MANIFEST, data)
        return digest

    def push_packed(self, name: str, layers: Sequence[Packed], *, tag: str = "1") -> str:
        """Push layers as they are, and return the manifest's digest."""
        digest, data = self._upload_packed(name, layers, config={}, architecture="amd64")
        self._put_manifest(name, tag, MANIFEST, data)
        return digest

    def served(self, name: str) -> int:
        """Return the bytes of the image's layers, config and manifest that the open registry has sent."""
        log = (self.certs.parent / f"{OPEN}.log").read_text(errors="replace")
        sent = rf'"GET /v2/{name}/(?:blobs|manifests)/\S+ HTTP/1.1" 20\d (\d+)'
        return sum(int(size) for size in re.findall(sent, log))

    def push_index(self, name: str, images: Sequence[TestImage], *, tag: str = "1") -> None:
        entries = []
        for image in images:
            digest, data = self._upload(name, image)
            self._put_manifest(name, digest, MANIFEST, data)
            platform = {"os": "linux", "architecture": image.architecture}
            entries.append({"mediaType": MANIFEST, "digest": digest, "size": len(data), "platform": platform})
        index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()
        self._put_manifest(name, tag, INDEX, index)

    def delete(self, name: str, digest: str) -> None:
        """Delete a manifest."""
        self._call("DELETE", f"/v2/{name}/manifests/{digest}", accept=(202,))

    def _upload(self, name: str, image: TestImage) -> tuple[str, bytes]:
        archives = [layer.archive() for layer in image.layers]
        layers = [
            Packed(blob=gzip.compress(archive, 1, mtime=0), diff_id=_digest(archive)) for archive in archives
        ]
        return self._upload_packed(name, layers, config=image.config, architecture=image.architecture)

    def _upload_packed(
        self, name: str, layers: Sequence[Packed], *, config: Mapping[str, Any], architecture: str
    ) -> tuple[str, bytes]:
        document = json.dumps(
            {
                "architecture": architecture,
                "os": "linux",
                "config": dict(config),
                "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            }
        ).encode()
        for blob in (document, *(layer.blob for layer in layers)):
            self._blob(name, blob)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": _digest(document), "size": len(document)},
            "layers": [
                {
                    "mediaType": LAYER,
                    "digest": _digest(layer.blob),
                    "size": len(layer.blob),
                    "annotations": dict(layer.annotations),
                }
                for layer in layers
            ],
        }
        data = json.dumps(manifest).encode()
        return _digest(data), data

    def _blob(self, name: str, data: bytes) -> None:
        begun = self._call("POST", f"/v2/{name}/blobs/uploads/", accept=(202,))
        place = urlsplit(begun.headers["Location"])
        query = f"{place.query}&digest={_digest(data)}"
        headers = {"Content-Type": "application/octet-stream"}
        self._call("PUT", f"{place.path}?{query}", data=data, headers=headers, accept=(201,))

    def _put_manifest(self, name: str, tag: str, kind: str, data: bytes) -> None:
        path = f"/v2/{name}/manifests/{tag}"
        self._call("PUT", path, data=data, headers={"Content-Type": kind}, accept=(201,))

    def _call(
        self,
        method: str,
        path: str,
        *,
        accept: tuple[int, ...],
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body=data, headers=dict(headers or {}))
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        assert response.status in accept, (method, path, response.status, answer[:300])
        return response


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _serves(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/v2/")
        return connection.getresponse().status in (200, 401)
    except OSError:
        return False
    finally:
        connection.close()


def tell_nodes(certs: Path, host: str, address: str) -> None:
    """Let nodes find a registry of this name at an address, which they look up at each pull."""
    place = certs / host
    place.mkdir(parents=True, exist_ok=True)
    url = f"http://{address}"
    (place / "hosts.toml").write_text(
        f'server = "{url}"\n[host."{url}"]\n  capabilities = ["pull", "resolve"]\n'
    )


@contextmanager
def registries(directory: Path) -> Iterator[Registries]:
    """Run both until the block ends."""
    port, private_port, dead_port = free_ports(3)
    certs = directory / "certs.d"
    for host, where in ((OPEN, port), (PRIVATE, private_port), (DEAD, dead_port)):
        tell_nodes(certs, host, f"127.0.0.1:{where}")
    (directory / "htpasswd").write_text(_HTPASSWD)
    found = Registries(port=port, private_port=private_port, certs=certs)
    auth = {"auth": {"htpasswd": {"realm": "tests", "path": str(directory / "htpasswd")}}}
    try:
        for host, where, extra in ((OPEN, port, {}), (PRIVATE, private_port, auth)):
            config = {
                "version": 0.1,
                "log": {"level": "error"},
                "storage": {
                    "filesystem": {"rootdirectory": str(directory / "storage")},
                    "delete": {"enabled": True},
                },
                "http": {"addr": f"127.0.0.1:{where}", "secret": "s" * 16},
                **extra,
            }
            path = directory / f"{host}.yaml"
            path.write_text(json.dumps(config))
            with (directory / f"{host}.log").open("wb") as log:
                found.processes[host] = subprocess.Popen(
                    [BIN / "registry", "serve", path],
                    env={"OTEL_TRACES_EXPORTER": "none", "PATH": "/usr/bin:/bin"},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
        for where in (port, private_port):
            wait_until(lambda where=where: _serves(where), what=f"registry at {where}")
        yield found
    finally:
        for process in found.processes.values():
            process.kill()
            process.wait()
