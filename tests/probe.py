"""Programs to see what reaches what: servers at two addresses, and a client that says what became of each attempt."""

from __future__ import annotations

# Its arguments: an IPv4 and an IPv6 address to serve at.
SERVER = """
import socket, sys, threading
def tcp(family, host, port):
    s = socket.create_server((host, port), family=family)
    while True: threading.Thread(target=echo, args=(s.accept()[0],), daemon=True).start()
def echo(c):
    while data := c.recv(99): c.sendall(data)
def udp(host, port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((host, port))
    while True: data, peer = s.recvfrom(99); s.sendto(data, peer)
four, six = sys.argv[1:]
for target, args in (tcp, (socket.AF_INET, four, 7001)), (tcp, (socket.AF_INET, four, 7002)), (tcp, (socket.AF_INET6, six, 7006)), (udp, (four, 7003)):
    threading.Thread(target=target, args=args, daemon=True).start()
print("up", flush=True); input()
"""
# Lines of `KIND HOST PORT` in, an answer for each out: what came back, or why nothing did. Its argument: seconds to wait.
PROBE = """
import errno, socket, sys
seconds = float(sys.argv[1]) if sys.argv[1:] else 5
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
for line in sys.stdin:
    kind, host, port = line.split()
    print(said(kind, host, int(port)), flush=True)
"""
