"""Servers outside of the cluster, at addresses of documentation: what the egress policies of suites allow and forbid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.cable import running
from tests.cluster.shell import run
from tests.frameworks.harbor_tasks import ALLOWED, ALSO_ALLOWED, OTHER, PORT

ADDRESSES = (ALLOWED, ALSO_ALLOWED, OTHER)
HTTP = 80
# Its arguments: addresses, then ports. It closes each connection at once.
_SERVER = """
import socket, sys, threading
def serve(s):
    while True: s.accept()[0].close()
addresses, ports = [a for a in sys.argv[1:] if "." in a], [int(p) for p in sys.argv[1:] if "." not in p]
for s in [socket.create_server((a, p)) for a in addresses for p in ports]:
    threading.Thread(target=serve, args=(s,), daemon=True).start()
print("up", flush=True); input()
"""


@contextmanager
def peers() -> Iterator[None]:
    """They serve on this machine, which the nodes send packets to that leave the cluster. Needs root."""
    with ExitStack() as stack:
        for address in ADDRESSES:
            on_loopback = (f"{address}/32", "dev", "lo")
            run(["ip", "address", "replace", *on_loopback])
            stack.callback(run, ["ip", "address", "delete", *on_loopback])
        stack.enter_context(running(_SERVER, *ADDRESSES, str(PORT), str(HTTP)))
        yield
