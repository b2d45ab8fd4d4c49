"""Programs to see what reaches what: servers at two addresses, and a client that says what became of each attempt."""

from __future__ import annotations

# Its arguments: an IPv4 and an IPv6 address to serve at.
SERVER = """
import socket, sys, threading
def tcp(s):
    while True: threading.Thread(target=echo, args=(s.accept()[0],), daemon=True).start()
def echo(c):
    while data := c.recv(99): c.sendall(data)
def udp(s):
    while True: data, peer = s.recvfrom(99); s.sendto(data, peer)
four, six = sys.argv[1:]
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); datagrams.bind((four, 7003))
# All are there before it says so.
for serve, s in (tcp, socket.create_server((four, 7001))), (tcp, socket.create_server((four, 7002))), (tcp, socket.create_server((six, 7006), family=socket.AF_INET6)), (udp, datagrams):
    threading.Thread(target=serve, args=(s,), daemon=True).start()
print("up", flush=True); input()
"""
# Lines of `KIND HOST PORT` in, an answer for each out in their order: what came back, or why nothing did. All are tried
# at one time, so that many silent ones take no longer than one. Its argument: seconds to wait.
PROBE = """
import errno, socket, sys, threading
seconds = float(sys.argv[1]) if sys.argv[1:] else 10
def said(kind, host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as s:
            s.settimeout(seconds)
            if kind == "sendto":
                s.sendto(b"hi", (host, port))
            else:
                s.connect((host, port)); s.send(b"hi")
            return s.recv(9).decode()
    except TimeoutError: return "silence"
    except OSError as e: return errno.errorcode[e.errno]
def tell(line, before):
    kind, host, port = line.split()
    answer = said(kind, host, int(port))
    if before: before.join()
    print(answer, flush=True)
last = None
for line in sys.stdin:
    last = threading.Thread(target=tell, args=(line, last)); last.start()
"""
