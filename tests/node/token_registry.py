"""A registry whose token server wants a password, as Docker Hub's does: it asks for a token and passes requests on."""

from __future__ import annotations

import base64
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests import plain_http


@contextmanager
def token_registry(*, port: int, user: str, password: str, public: bool) -> Iterator[str]:
    """Run one in front of the registry at `port` of loopback until the block ends; return its URL.

    `public`: who says no password may pull, too; a wrong one is refused.
    """
    login = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    token = secrets.token_hex(16)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = self.headers.get("Authorization")
            if self.path.startswith("/token?"):
                known = said == login or (public and said is None)
                document = {"token": token, "expires_in": 300} if known else {"details": "wrong password"}
                self._answer(200 if known else 401, json.dumps(document).encode())
            elif said != f"Bearer {token}":
                asked = f'Bearer realm="{url}/token",service="tests"'
                self._answer(401, b"", **{"WWW-Authenticate": asked})
            else:
                sent = {"Accept": ", ".join(self.headers.get_all("Accept", []))}
                answer = plain_http.request(self.command, f"{behind}{self.path}", headers=sent, timeout=30)
                kept = {name: answer.headers.get(name) for name in ("Content-Type", "Docker-Content-Digest")}
                if self.command == "HEAD":
                    kept["Content-Length"] = answer.headers.get("Content-Length")
                self._answer(
                    answer.status_code,
                    answer.content,
                    **{name: value for name, value in kept.items() if value is not None},
                )

        do_HEAD = do_GET

        def do_POST(self) -> None:
            """OAuth2, which clients try first, and Docker Hub has not for passwords."""
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(405, b"")

        def _answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # to stderr by default
            pass

    behind = f"http://127.0.0.1:{port}"
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield url
        finally:
            server.shutdown()
            thread.join()
