"""Parses egress policies in Prime's form, and converts them to canonical entries and the sidecar's rules."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

import msgspec

_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?\Z")
_ADDRESS = re.compile(r"[\d./]+\Z")
_HOST = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\Z")
_DOTS = re.compile("[.\u3002\uff0e\uff61]")  # dots between the labels of a name, in any script
_LONGEST = 300  # characters of an entry, at most
_ANY = "*."  # prefix that stands for every name below, not the name itself
_READ = (80, 443)  # ports whose connections name their host: in HTTP's Host, in TLS's server name

# (network, prefix, lowest port, highest port; 0 and 0: all), or (host or `*.` and a suffix, port of _READ; 0: both).
Rule = tuple[int, int, int, int] | tuple[str, int]


class BadTarget(ValueError):
    """Raised for an entry that is invalid or cannot be enforced; `number` is its index in the list."""

    number = 0


class Egress(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A canonical policy with exactly one list: an empty denylist allows everything, an empty allowlist nothing."""

    allowlist: list[str] | None = None
    denylist: list[str] | None = None

    @property
    def field(self) -> str:
        return "denylist" if self.allowlist is None else "allowlist"

    def document(self) -> dict[str, Any]:
        return {"allowlist": self.allowlist, "denylist": self.denylist}

    def rules(self) -> dict[str, Any]:
        """Return the policy in the sidecar's form (docs/sidecar-contract.md)."""
        entries = self.allowlist or self.denylist or []
        allow = self.allowlist is not None
        return {"policy": self.document(), "allow": allow, "rules": [read(entry)[1] for entry in entries]}


EVERYTHING, NOTHING = Egress(denylist=[]), Egress(allowlist=[])


def canonical(*, allowlist: list[str] | None, denylist: list[str] | None) -> Egress:
    """Return the canonical policy of one of the lists. Raises BadTarget."""
    entries: dict[str, None] = {}
    for number, entry in enumerate(allowlist or denylist or []):
        try:
            entries[read(entry)[0]] = None
        except BadTarget as error:
            error.number = number
            raise
    return Egress(denylist=list(entries)) if allowlist is None else Egress(allowlist=list(entries))


def read(entry: str) -> tuple[str, Rule]:
    """Parse an entry; return its canonical text and its rule. Raises BadTarget."""
    if len(entry) > _LONGEST:
        raise BadTarget(f"{entry[:40]!r}… is longer than {_LONGEST} characters")
    target, colon, ports = entry.strip().partition(":")
    if ":" in ports:
        raise BadTarget(f"{entry!r}: IPv6 addresses are not supported")
    low, high = _ports(ports, entry=entry) if colon else (0, 0)
    if not _ADDRESS.match(target):
        return _name(target, low, high, entry=entry)
    try:
        network = ipaddress.IPv4Network(target)
    except ValueError as error:
        raise BadTarget(f"{entry!r} is not an IPv4 address or network: {error}") from error
    text = str(network)
    if low:
        text += f":{low}" if low == high else f":{low}-{high}"
    return text, (int(network.network_address), network.prefixlen, low, high)


def _name(target: str, low: int, high: int, *, entry: str) -> tuple[str, Rule]:
    wildcard = _ANY if target.startswith(_ANY) else ""
    name = target.removeprefix(_ANY).removesuffix(".")
    try:
        # IDNA encoding takes time quadratic in a label's length.
        if any(len(label) > 63 for label in _DOTS.split(name)):
            raise UnicodeError("a label is longer than 63 characters")
        host = name.encode("idna").decode("ascii").lower()
    except UnicodeError as error:
        raise BadTarget(f"{entry!r} is not a host name: {error}") from error
    if not _HOST.match(host) or len(host) > 253:
        hint = "an IPv4 address, a network, a host or *.host, each with an optional port"
        raise BadTarget(f"{entry!r} is invalid: must be {hint}")
    if low != high or low not in (0, *_READ):
        raise BadTarget(
            f"{entry!r}: a host's port must be 80 or 443 (where connections name their host), or absent"
        )
    text = wildcard + host
    return text + f":{low}" if low else text, (text, low)


def _ports(text: str, *, entry: str) -> tuple[int, int]:
    found = _PORTS.match(text)
    if found is None:
        raise BadTarget(f"{entry!r}: the port must be a number or a range FIRST-LAST")
    low = int(found[1])
    high = int(found[2] or low)
    if not 1 <= low <= high <= 65535:
        raise BadTarget(f"{entry!r}: ports must be 1 to 65535, the lower one first")
    return low, high
