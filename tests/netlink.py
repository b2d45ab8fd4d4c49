"""Network namespaces, links, addresses and routes by rtnetlink: a machine may be without the program `ip`. Needs root."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from sandlot_sidecar.executor import syscalls

T = TypeVar("T")

# linux/netlink.h, rtnetlink.h, if_link.h, if_addr.h, veth.h, sockios.h
_REQUEST, _ACK, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x200, 0x400
_NEWLINK, _DELLINK, _NEWADDR, _NEWROUTE, _DELROUTE = 16, 17, 20, 24, 25
_IFNAME, _LINKINFO, _NET_NS_FD = 3, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL, _NODAD = 1, 2, 0x02
_RTA_DESTINATION, _RTA_GATEWAY, _TABLE_MAIN, _PROTO_BOOT, _UNICAST, _BLACKHOLE = 1, 5, 254, 3, 1, 6
_IFF_UP = 1
_SIOCGIFINDEX = 0x8933
_LINK = struct.Struct("BxHiII")  # ifinfomsg


class Network:
    """One network namespace, by a netlink socket that was made in it."""

    def __init__(self) -> None:
        """The one of the calling thread."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)

    def __enter__(self) -> Network:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def add_veth(self, near: str, far: str, *, namespace: Path) -> None:
        """A pair of links: `near` here, `far` in another namespace."""
        with namespace.open("rb") as other:
            peer = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + _name(far)
            peer += _attribute(_NET_NS_FD, struct.pack("I", other.fileno()))
            info = _attribute(_INFO_KIND, b"veth") + _attribute(_INFO_DATA, _attribute(_VETH_PEER, peer))
            link = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + _name(near) + _attribute(_LINKINFO, info)
            self._ask(_NEWLINK, link, flags=_CREATE | _EXCLUSIVE)

    def delete(self, link: str) -> None:
        self._ask(_DELLINK, _LINK.pack(socket.AF_UNSPEC, 0, self._index(link), 0, 0))

    def up(self, link: str) -> None:
        self._ask(_NEWLINK, _LINK.pack(socket.AF_UNSPEC, 0, self._index(link), _IFF_UP, _IFF_UP))

    def add_address(self, link: str, address: str) -> None:
        """`address`: with the length of its network; one of IPv6 is used at once, without a look for others."""
        interface = ipaddress.ip_interface(address)
        four = interface.version == 4
        family, flags = (socket.AF_INET, 0) if four else (socket.AF_INET6, _NODAD)
        head = struct.pack("BBBBI", family, interface.network.prefixlen, flags, 0, self._index(link))
        packed = interface.ip.packed
        body = head + _attribute(_IFA_LOCAL, packed) + _attribute(_IFA_ADDRESS, packed)
        self._ask(_NEWADDR, body, flags=_CREATE | _EXCLUSIVE)

    def add_default_route(self, gateway: str) -> None:
        """Of IPv4."""
        head = struct.pack("8BI", socket.AF_INET, 0, 0, 0, _TABLE_MAIN, _PROTO_BOOT, 0, _UNICAST, 0)
        body = head + _attribute(_RTA_GATEWAY, socket.inet_aton(gateway))
        self._ask(_NEWROUTE, body, flags=_CREATE | _EXCLUSIVE)

    def drop(self, peer: str) -> None:
        """Drop all packets to an IPv4 address, and tell no one, until `mend`: the peer there has no answer."""
        self._ask(_NEWROUTE, _blackhole(peer), flags=_CREATE | _EXCLUSIVE)

    def mend(self, peer: str) -> None:
        self._ask(_DELROUTE, _blackhole(peer))

    def _index(self, link: str) -> int:
        # Not socket.if_nametoindex: that knows the links of the thread's own namespace.
        answer = fcntl.ioctl(self._socket, _SIOCGIFINDEX, struct.pack("16s24x", link.encode()))
        return struct.unpack_from("i", answer, 16)[0]

    def _ask(self, kind: int, body: bytes, *, flags: int = 0) -> None:
        """Raises OSError when the kernel refuses."""
        head = struct.pack("IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, 1, 0)
        self._socket.send(head + body)
        answer = self._socket.recv(65536)
        code = struct.unpack_from("i", answer, 16)[0]
        if code:
            raise OSError(-code, os.strerror(-code))


def make_network(path: Path) -> Network:
    """A new namespace, which `path` names from now on."""

    def enter() -> None:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        syscalls.mount("/proc/thread-self/ns/net", str(path), None, syscalls.MS_BIND)

    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(exist_ok=False)
    try:
        return _made_in(enter, Network)
    except BaseException:
        remove_network(path)
        raise


def network_at(path: Path) -> Network:
    """The namespace that `path` names, `/proc/PID/ns/net` say."""
    return _made_in(lambda: _enter(path), Network)


def listening_at(path: Path, address: str) -> socket.socket:
    """A socket that listens in the namespace that `path` names, for this process to accept from."""
    return _made_in(lambda: _enter(path), lambda: socket.create_server((address, 0)))


def _enter(path: Path) -> None:
    with path.open("rb") as namespace:
        syscalls.setns(namespace.fileno(), syscalls.CLONE_NEWNET)


def _made_in(enter: Callable[[], None], make: Callable[[], T]) -> T:
    # In a thread of its own, since the namespace that a thread enters is that thread's alone.
    def made() -> T:
        enter()
        return make()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(made).result()


def remove_network(path: Path) -> None:
    """Takes the name away; the namespace goes with its last process and link."""
    with contextlib.suppress(OSError):
        syscalls.umount(str(path))
    path.unlink(missing_ok=True)


def _blackhole(address: str) -> bytes:
    head = struct.pack("8BI", socket.AF_INET, 32, 0, 0, _TABLE_MAIN, _PROTO_BOOT, 0, _BLACKHOLE, 0)
    return head + _attribute(_RTA_DESTINATION, socket.inet_aton(address))


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def _name(link: str) -> bytes:
    return _attribute(_IFNAME, link.encode() + b"\0")
