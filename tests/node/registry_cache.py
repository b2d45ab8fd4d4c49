"""A cache of a registry with the chart's configuration, and nodes whose agents have containerd use it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

import httpx
import yaml

from tests import plain_http
from tests.chart.render import Resource, one, render
from tests.cluster.paths import BIN
from tests.node.private_containerd import Containerd, containerd, unmount_all
from tests.node.program import Program
from tests.ports import free_port
from tests.waiting import SECONDS, wait_until


class Cache(Protocol):
    """What a node knows of a cache."""

    host: str

    def mirror(self) -> dict[str, Any]:
        """As the agent's settings have it."""
        ...


class NosyCache:
    """Answers the agent as a cache does, and asks everybody else for a password; keeps what it was asked and given."""

    def __init__(self, host: str, *, upstream: str, port: int) -> None:
        self.host, self._upstream, self._port = host, upstream, port
        self.asked: list[str] = []
        self.given: list[str] = []

    def mirror(self) -> dict[str, Any]:
        return {"host": self.host, "upstream": self._upstream, "cache": "localhost", "port": self._port}


@contextmanager
def nosy(host: str, *, upstream: str) -> Iterator[NosyCache]:
    """Run one until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/v2/":
                cache.asked.append(self.path)
            cache.given += self.headers.get_all("Authorization", [])
            self.send_response(200 if self.path == "/v2/" else 401)
            self.send_header("WWW-Authenticate", 'Basic realm="cache"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:  # to stderr by default
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        cache = NosyCache(host, upstream=upstream, port=server.server_address[1])
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield cache
        finally:
            server.shutdown()
            thread.join()


class RegistryCache:
    """distribution as the chart configures it, for one upstream."""

    def __init__(
        self,
        directory: Path,
        *,
        host: str,
        upstream: str,
        secret: Mapping[str, str] | None = None,
        **values: Any,
    ) -> None:
        """`upstream`: its URL. `secret`: what the `credentialsSecret` has, by keys. `values`: more of `registryCache`."""
        self.host, self.upstream = host, upstream
        self.port = free_port()
        self.storage = directory / "storage"
        self.storage.mkdir(parents=True)
        self.log = directory / "registry.log"
        self._config = directory / "config.yml"
        resources = _resources(host, upstream, values, with_secret=secret is not None)
        self._config.write_text(_config(resources, upstream))
        self._variables = _variables(resources, secret or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [BIN / "registry", "serve", self._config],
                env={
                    "PATH": "/usr/bin:/bin",
                    **self._variables,
                    "REGISTRY_HTTP_ADDR": f"127.0.0.1:{self.port}",
                    "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": str(self.storage),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self.answers, what=str(self.log))

    def answers(self) -> bool:
        try:
            return plain_http.get(f"http://127.0.0.1:{self.port}/v2/").status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(SECONDS)
            self._process = None

    def blobs(self) -> list[Path]:
        """The files of layers, configurations and manifests that it keeps."""
        return list(self.storage.glob("docker/registry/v2/blobs/**/data"))

    def mirror(self) -> dict[str, Any]:
        return {"host": self.host, "upstream": self.upstream, "cache": "localhost", "port": self.port}


def _resources(host: str, upstream: str, values: dict[str, Any], *, with_secret: bool) -> list[Resource]:
    of_host = {"name": "c", "host": host, "url": upstream}
    if with_secret:
        of_host["credentialsSecret"] = "login"
    cache = {"upstreams": [of_host], "nodeCIDRs": ["10.0.0.0/8"]}
    return render({"nodeAgent": {"enabled": True}, "registryCache": {"enabled": True, **cache, **values}})


def _variables(resources: list[Resource], secret: Mapping[str, str]) -> dict[str, str]:
    """The environment of its container, whose references to the Secret have what that has."""
    (container,) = one(resources, "Deployment", "sandlot-cache-c")["spec"]["template"]["spec"]["containers"]
    found: dict[str, str] = {}
    for each in container["env"]:
        of_secret = each.get("valueFrom", {}).get("secretKeyRef")
        found[each["name"]] = each["value"] if of_secret is None else secret[of_secret["key"]]
    return found


def _config(resources: list[Resource], upstream: str) -> str:
    text = one(resources, "ConfigMap", "sandlot-cache-c")["data"]["config.yml"]
    assert yaml.safe_load(text)["proxy"]["remoteurl"] == upstream
    return text


@contextmanager
def cached(directory: Path, *, host: str, upstream: str, **values: Any) -> Iterator[RegistryCache]:
    """Run one until the block ends, see RegistryCache."""
    cache = RegistryCache(directory, host=host, upstream=upstream, **values)
    try:
        cache.start()
        yield cache
    finally:
        cache.kill()


class MirroredNode:
    """A containerd whose registries are configured by its agent alone."""

    def __init__(self, directory: Path, daemon: Containerd, certs: Path, *caches: Cache) -> None:
        self.certs = certs
        # One look, at its start: what comes then is containerd's own.
        self.agent = Program(
            directory,
            daemon.socket,
            SANDLOT_MIRRORS=json.dumps([cache.mirror() for cache in caches]),
            SANDLOT_MIRROR_CHECK="3600",
            SANDLOT_CERTS=str(certs),
            SANDLOT_REGISTRIES=json.dumps([cache.host for cache in caches]),
        )
        self.agent.start()
        for cache in caches:
            wait_until((certs / cache.host / "hosts.toml").exists, what="the agent has written the file")


@contextmanager
def nodes(directory: Path, *caches: Cache) -> Iterator[list[MirroredNode]]:
    """Two nodes; containerd pulls by its transfer service on one, by itself on the other."""
    with ExitStack() as exits:
        made: list[MirroredNode] = []
        for name, local in (("a", False), ("b", True)):
            place = directory / name
            place.mkdir()
            certs = place / "certs.d"
            daemon = exits.enter_context(containerd(place, certs=certs, local=local))
            exits.callback(unmount_all, place)
            node = MirroredNode(place, daemon, certs, *caches)
            exits.callback(node.agent.clear)
            made.append(node)
        yield made
