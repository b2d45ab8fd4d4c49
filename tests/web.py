"""A name server, and servers of HTTP and TLS at the address that its names have; and what to ask them from a sandbox."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

from tests.cable import running

NAMES = ("allowed.test", "sub.allowed.test", "other.test")
# Its arguments: where to serve, a certificate with its key, and names. A name server knows no other names; what is no
# question it sends back.
_SERVER = r"""
import socket, ssl, sys, threading
host, pem, *names = sys.argv[1:]
def tcp(s, serve):
    while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
def http(c):
    head = b""
    while b"\r\n\r\n" not in head:
        if not (data := c.recv(9999)): return
        head += data
    size = int((head.split(b"Size: ") + [b"0"])[1].split()[0])
    body = b"x" * size or b"http"
    try:
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        while data := c.recv(9999): c.sendall(data)
    except OSError: pass
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain(pem)
def tls(c):
    try:
        with context.wrap_socket(c, server_side=True) as s: s.sendall(b"tls"); s.recv(9)
    except OSError: pass
def names_of(s):
    while True:
        data, peer = s.recvfrom(999)
        if len(data) < 12: s.sendto(data, peer); continue
        end = data.index(b"\0", 12); labels, at = [], 12
        while at < end: labels.append(data[at+1:at+1+data[at]]); at += 1 + data[at]
        known = b".".join(labels).decode() in names; a = known and data[end+1:end+3] == b"\0\1"
        answer = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton(host) if a else b""
        head = data[:2] + (b"\x81\x80" if known else b"\x81\x83") + b"\0\1" + bytes([0, a]) + bytes(4)
        s.sendto(head + data[12:end+5] + answer, peer)
questions = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); questions.bind((host, 53))
# All are there before it says so.
for work, *given in (tcp, socket.create_server((host, 80)), http), (tcp, socket.create_server((host, 443)), tls), (names_of, questions):
    threading.Thread(target=work, args=given, daemon=True).start()
print("up", flush=True); input()
"""

# Lines of `http|tls ADDRESS NAME` in, an answer for each out: what came back, or why nothing did.
ASK = """
import errno, http.client, socket, ssl, sys
context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
def said(kind, address, name):
    try:
        if kind == "http":
            asked = http.client.HTTPConnection(address, 80, timeout=10)
            asked.request("GET", "/", headers={"Host": name})
            answer = asked.getresponse()
            return answer.read().decode() if answer.status == 200 else str(answer.status)
        with socket.create_connection((address, 443), timeout=10) as s:
            with context.wrap_socket(s, server_hostname=None if name == "-" else name) as t: return t.recv(9).decode()
    except TimeoutError: return "silence"
    except ssl.SSLError as e: return e.reason
    except OSError as e: return errno.errorcode.get(e.errno, type(e).__name__)
for line in sys.stdin:
    print(said(*line.split()), flush=True)
"""


@contextmanager
def web(address: str, *, namespace: str | None = None) -> Iterator[None]:
    """The servers at this address, which NAMES have; `namespace`: in that one."""
    certificate = trustme.CA().issue_cert(*NAMES)
    with tempfile.TemporaryDirectory() as directory:
        pem = Path(directory) / "server.pem"
        certificate.private_key_and_cert_chain_pem.write_to_path(str(pem))
        with running(_SERVER, address, str(pem), *NAMES, namespace=namespace):
            yield
