"""A World as it is read through kubectl: every pod's requests are in it, and the clock of each part that answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sandlot.cli.cluster import checks
from sandlot.cli.cluster.api import Api, Unread
from sandlot.cli.cluster.finding import OK, UNCHECKED
from sandlot.cli.cluster.kubectl import Kubectl
from sandlot.cli.cluster.reading import read
from sandlot.cli.cluster.world import Kind, World

from tests.cli.cluster.breaks import INSIDE
from tests.cli.cluster.worlds import Cluster, Raw, named


class _Played(BaseHTTPRequestHandler):
    """An API server with the objects of `cluster`, two a page, and a gateway whose metrics need a key."""

    cluster: Cluster

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/metrics":
            self._answer(401, {})
        elif url.path == "/version":
            self._answer(200, {"gitVersion": "v1.36.1"})
        else:
            self._listed(url.path, query)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(201, {"status": {"allowed": True}})

    def _listed(self, path: str, query: dict[str, str]) -> None:
        base, _, inside = path.partition("/namespaces/")
        namespace, _, plural = inside.partition("/")
        if not inside:
            base, _, plural = path.rpartition("/")
        kind = next((kind for kind in Kind if kind.value == (base, plural)), None)
        if kind is None:
            return self._answer(404, {})
        found: list[Raw] = []
        for (one, where), raws in self.cluster.objects.items():
            if one is kind and namespace in ("", where):
                found += [raw for raw in raws if self._is_chosen(raw, query)]
        first = int(query.get("continue", 0))
        more = {"continue": str(first + 2)} if len(found) > first + 2 else {}
        return self._answer(200, {"items": found[first : first + 2], "metadata": more})

    @staticmethod
    def _is_chosen(raw: Raw, query: dict[str, str]) -> bool:
        labels = raw["metadata"].get("labels", {})
        wanted = [each.split("=") for each in query.get("labelSelector", "").split(",") if each]
        fields = query.get("fieldSelector", "").split(",")
        excluded = f"metadata.namespace!={raw['metadata'].get('namespace')}" in fields
        return all(labels.get(name) == value for name, value in wanted) and not excluded

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def address_string(self) -> str:
        return ""

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Proxy(ThreadingUnixStreamServer):
    request_queue_size = 128  # the reader connects several times at once, and a full queue refuses


@contextmanager
def _serving(server: _Proxy | ThreadingHTTPServer) -> Iterator[None]:
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def world_of(cluster: Cluster) -> World:
    handler = type("Handler", (_Played,), {"cluster": cluster})
    # Not pytest's own directory: a socket's path has at most 108 bytes.
    with TemporaryDirectory() as directory:
        socket, program = Path(directory) / "socket", Path(directory) / "kubectl"
        parts = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        with _serving(_Proxy(str(socket), handler)), _serving(parts):
            line = f"Forwarding from 127.0.0.1:{parts.server_port} -> 8642"
            program.write_text(f"#!/bin/sh\necho '{line}'\nexec sleep 60\n")
            program.chmod(0o700)
            kubectl = Kubectl(str(program), (), "v1.36.3", "test")
            return read(kubectl, Api(socket, socket), namespace="sandlot", name=None, api_key=None)


def _requesting(name: str, namespace: str, cpu: str) -> Raw:
    containers = [{"name": "any", "resources": {"requests": {"cpu": cpu}}}]
    return named(name, namespace) | {
        "spec": {"nodeName": "worker", "containers": containers},
        "status": {"phase": "Running"},
    }


def test_the_pods_of_everybody_are_counted_once() -> None:
    """Those without a label of ours in the sandboxes' namespace, too, and those of each page."""
    cluster = Cluster()
    cluster.objects_of(Kind.PODS, INSIDE).append(_requesting("debug", INSIDE, "3"))
    cluster.objects_of(Kind.PODS, "others").extend(_requesting(f"o-{n}", "others", "1") for n in range(3))
    requested = world_of(cluster).requested
    assert not isinstance(requested, Unread)
    assert requested == {"worker": {"cpu": 6, "pods": 8}}


def test_a_gateway_that_wants_a_key_tells_its_clock_all_the_same() -> None:
    world = world_of(Cluster())
    found = {one.name: one for one in checks.findings(world)}
    assert found["gateway g-1"].state == UNCHECKED
    clocks = found["clocks of gateways and controllers"]
    assert (clocks.state, clocks.detail.partition(" ")[0]) == (OK, "2")
    assert found["clock of this machine"].state == OK
