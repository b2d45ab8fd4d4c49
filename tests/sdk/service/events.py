"""A server of event streams that does what a test writes down, connection by connection."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


def event(sandbox_id: str, kind: str, *, cursor: str, **data: Any) -> bytes:
    document = {
        "id": f"{sandbox_id}:{kind}",
        "type": f"sandbox.{kind}",
        "timestamp": "2026-03-01T09:30:00.000000Z",
        "data": {"sandboxId": sandbox_id, "status": "RUNNING", "labels": ["l"], **data},
    }
    return f"id: {cursor}\nevent: {document['type']}\ndata: {json.dumps(document)}\n\n".encode()


class Scripted:
    """`answers` go out in turn, each with its status and body, after which the connection breaks."""

    def __init__(self, answers: list[tuple[int, bytes]]) -> None:
        self.answers = answers
        self.queries: list[dict[str, list[str]]] = []
        self.url = ""


@contextmanager
def scripted(*answers: tuple[int, bytes]) -> Iterator[Scripted]:
    script = Scripted(list(answers))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            script.queries.append(parse_qs(urlsplit(self.path).query))
            status, body = script.answers.pop(0)
            self.send_response(status)
            if status == 200:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                # In two parts, of which the first ends inside a line; without the last chunk.
                for part in (body[:7], body[7:]):
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            else:
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
