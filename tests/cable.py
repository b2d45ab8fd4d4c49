"""A cable between this machine and a network namespace of its own, and the servers of `tests.probe` at one end of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.netlink import Network, make_network, remove_network
from tests.ports import NUMBER
from tests.probe import SERVER


@dataclass(frozen=True)
class Cable:
    """`inside` is the end in the namespace, `outside` the other; IPv4 and IPv6 addresses. Needs root."""

    namespace: str
    inside: str
    inside6: str
    outside: str
    outside6: str

    @property
    def path(self) -> str:
        """The namespace's."""
        return f"/run/netns/{self.namespace}"


@contextmanager
def cable(kind: str, *, network: int) -> Iterator[Cable]:
    """`kind`: a letter for the names of its devices; `network`: 198.18 or 198.19's last number."""
    number = NUMBER + 1
    near, far = f"sl{kind}h{os.getpid()}", f"sl{kind}n{os.getpid()}"
    net, net6 = f"198.{network}.{number}", f"fd{network}:{number:x}:"
    made = Cable(f"sandlot-{kind}-{os.getpid()}", f"{net}.2", f"{net6}:2", f"{net}.1", f"{net6}:1")

    path = Path(made.path)
    with Network() as outside, make_network(path) as inside:
        try:
            outside.add_veth(near, far, namespace=path)
            for network_of, link, addresses in (
                (outside, near, (f"{made.outside}/30", f"{made.outside6}/64")),
                (inside, far, (f"{made.inside}/30", f"{made.inside6}/64")),
            ):
                for address in addresses:
                    network_of.add_address(link, address)
                network_of.up(link)
            inside.up("lo")
            inside.add_default_route(made.outside)
            yield made
        finally:
            with contextlib.suppress(OSError):  # none was made
                outside.delete(near)
            remove_network(path)


@contextmanager
def serving(four: str, six: str, *, namespace: str | None = None) -> Iterator[None]:
    """The servers at these addresses; `namespace`: in that one."""
    with running(SERVER, four, six, namespace=namespace):
        yield


@contextmanager
def running(program: str, *arguments: str, namespace: str | None = None) -> Iterator[None]:
    """A program of Python's that says `up` when it serves; `namespace`: in that one."""
    within = [] if namespace is None else ["nsenter", f"--net=/run/netns/{namespace}"]
    pipe = subprocess.PIPE
    server = subprocess.Popen(
        [*within, sys.executable, "-c", program, *arguments], stdin=pipe, stdout=pipe, text=True
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"
        yield
    finally:
        server.kill()
        server.communicate()
