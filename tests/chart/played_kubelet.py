"""Plays the part of a kubelet that gives containers' logs to the API server."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.certificates import issued
from tests.kube.apiserver import ApiServer


@contextmanager
def kubelet(server: ApiServer, node: str, directory: Path, logs: dict[str, str]) -> Iterator[None]:
    """`logs`: by POD/CONTAINER; others are not found."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, kind, _, pod, container = (urlsplit(self.path).path.split("/") + [""] * 5)[:5]
            text = logs.get(f"{pod}/{container}") if kind == "containerLogs" else None
            body = (text or "no such container").encode()
            self.send_response(404 if text is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    certificate = issued(directory, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": listening.server_port}},
        }
        path = f"/api/v1/nodes/{node}/status"
        server.call("PATCH", path, {"status": status}, content_type="application/merge-patch+json")
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield
        finally:
            listening.shutdown()
            thread.join()
