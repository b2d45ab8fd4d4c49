"""Entries of a network policy, as Prime writes them: read, made canonical, and turned into what a sidecar compares."""

from __future__ import annotations

import ipaddress
import re

_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?\Z")
_ADDRESS = re.compile(r"[\d./]+\Z")

Rule = tuple[int, int, int, int]  # network, prefix, lowest port, highest port; 0 and 0 for all


class BadTarget(ValueError):
    """An entry that is none, or cannot be held here."""


def read(entry: str) -> tuple[str, Rule]:
    """The canonical entry and its rule. Raises BadTarget."""
    address, colon, ports = entry.strip().partition(":")
    if ":" in ports:
        raise BadTarget(f"{entry!r}: IPv6 addresses cannot be named")
    if not _ADDRESS.match(address):
        raise BadTarget(f"{entry!r}: hosts are not supported by this server, name IPv4 addresses")
    try:
        network = ipaddress.IPv4Network(address)
    except ValueError as error:
        raise BadTarget(f"{entry!r} is no IPv4 address or network: {error}") from error
    low, high = _ports(ports, entry=entry) if colon else (0, 0)
    text = str(network)
    if low:
        text += f":{low}" if low == high else f":{low}-{high}"
    return text, (int(network.network_address), network.prefixlen, low, high)


def _ports(text: str, *, entry: str) -> tuple[int, int]:
    found = _PORTS.match(text)
    if found is None:
        raise BadTarget(f"{entry!r}: the port is a number, or two with a - between")
    low = int(found[1])
    high = int(found[2] or low)
    if not 1 <= low <= high <= 65535:
        raise BadTarget(f"{entry!r}: ports are 1 to 65535, the lower one first")
    return low, high
