"""An app in a sandbox, which needs only Python: it tells what it got, streams both ways, and echoes a WebSocket.

It prints its port. `/deny` answers as the gateway would, `/up` and `/down` carry a body of any size.
"""

from __future__ import annotations

import base64
import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class App(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.headers.get("Upgrade", "").lower() == "websocket":
            self.echo()
        elif self.path.startswith("/deny"):
            body = b'{"sandboxId":"","message":"The sandbox was not found","code":502}'
            headers = {"X-Sandlot-Refusal": "sandbox_not_found", "Clear-Site-Data": '"*"', "X-Own": "1"}
            self.answer(
                502, body, {**headers, "Set-Cookie": "a=1; Domain=e2b.test; Path=/; domain = x; Secure"}
            )
        elif self.path.startswith("/down"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for _ in range(256):
                self.wfile.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.told()

    def do_POST(self) -> None:
        if self.path.startswith("/up"):
            size = 0
            for piece in iter(self.chunk, b""):
                size += len(piece)
            self.answer(200, str(size).encode())
        else:
            self.told()

    def told(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        told = {"method": self.command, "path": self.path, "headers": [*self.headers.items()]}
        self.answer(200, json.dumps(told).encode())

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def chunk(self) -> bytes:
        size = int(self.rfile.readline(), 16)
        piece = self.rfile.read(size)
        self.rfile.readline()
        return piece

    def echo(self) -> None:
        self.close_connection = True
        accept = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + GUID).encode()).digest())
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade")):
            self.send_header(name, value)
        self.send_header("Sec-WebSocket-Accept", accept.decode())
        self.end_headers()
        told = json.dumps({name.lower(): value for name, value in self.headers.items()}).encode()
        self.wfile.write(b"\x81\x7e" + len(told).to_bytes(2, "big") + told)
        while head := self.rfile.read(2):  # of a short masked message
            mask, size = self.rfile.read(4), head[1] & 0x7F
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(size)))
            self.wfile.write(bytes([head[0], size]) + data)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: no test reads it."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), App)
    print(server.server_port, flush=True)
    server.serve_forever()
