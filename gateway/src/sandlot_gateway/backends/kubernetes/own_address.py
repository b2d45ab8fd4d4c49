"""Tells this gateway's own address from those of the other gateways."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

from ...data.dial import split_host_port


def is_own(address: str, *, host: str, port: int) -> bool:
    """Return whether a server that listens on `host` and `port` of this machine has this address."""
    its_host, its_port = split_host_port(address)
    if its_port != port:
        return False
    if (only := _one_address(host)) is not None:
        return only == _one_address(its_host)
    with socket.socket(socket.AF_INET6 if ":" in its_host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((its_host, 0))
        except OSError:
            return False  # an address of another machine
    return True


def _one_address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a server listens on; None for all of them, or for a name."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return None if address.is_unspecified else address
