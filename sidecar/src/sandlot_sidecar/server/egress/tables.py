"""Compiles an egress policy to tables of gVisor's packet filter, which has no BPF; imported by the first policy.

The tables apply to all that the pod sends, except what is marked as the sidecar's own, and redirect to the proxy what
it has to read. The layouts are those of Linux (ip_tables.h, ip6_tables.h, x_tables.h).
"""

from __future__ import annotations

import socket
import struct

from ...core.errors import ApiError
from ..mark import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    Rule = tuple[int, int, int, int]

MOST_BYTES = 32 << 10  # gVisor's limit on a socket option

_REPLACE_TABLE = 64  # IPT_SO_SET_REPLACE and IP6T_SO_SET_REPLACE
_PREROUTING, _INPUT, _FORWARD, _OUTPUT, _POSTROUTING = range(5)
_ACCEPT, _DROP = -2, -1
_RANGES = 7  # that fit into one match of ports
_DESTINATION = 1
_ICMP, _TCP, _ICMP6 = 1, 6, 58

# The same for IPv4 and IPv6: an entry's offsets and counters, heads of a match, a target and a table.
_PLACES, _MATCH, _VERDICT = struct.Struct("=IHHI16x"), struct.Struct("=H29sB"), struct.Struct("=H29sBi4x")
_PLACES6 = struct.Struct("=IHHI4x16x")
_HEAD = struct.Struct("=32sIII5I5IIQ")
_ERROR = struct.pack("=H29sB30s2x", 64, b"ERROR", 0, b"ERROR")
_MARKED = struct.pack("=IIB7x", MARK, 0xFFFFFFFF, 0)
_REDIRECT = struct.Struct("=H29sBIIII2s2s4x")
_BY_PORT = 2  # NF_NAT_RANGE_PROTO_SPECIFIED


class Held:
    """Tables of one policy. `proxied` maps the ports that have to be read to the proxy's ports, on 127.0.0.1.

    Raises a 409 if gVisor cannot hold so many rules.
    """

    def __init__(self, *, allow: bool, rules: list[Rule], proxied: dict[int, int]) -> None:
        self.everything = not allow and not rules and not proxied
        self.reads = bool(proxied)
        self.filter4 = _filter4(allow=allow, rules=rules, proxied=proxied)
        # No proxy would read IPv6 traffic.
        self.filter6 = _filter6(closed=allow or bool(proxied))
        self.nat = _nat(rules=rules, proxied=proxied)
        most = max(len(self.filter4), len(self.nat))
        if most > MOST_BYTES:
            text = (
                f"gVisor accepts {MOST_BYTES} bytes of rules, these have {most}: use fewer networks or ports"
            )
            raise _unsupported(text)


def hold(wanted: Held, *, instead_of: Held) -> None:
    """Replace the tables; on failure the old ones stay in force. Raises a 409."""
    if wanted.everything and instead_of.everything:
        return  # neither policy has an effect
    try:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as ip4,
            socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_TCP) as ip6,
        ):
            try:
                _replace(wanted, ip4, ip6, nat=wanted.reads or instead_of.reads)
            except OSError:
                _replace(instead_of, ip4, ip6, nat=instead_of.reads)
                raise
    except PermissionError as error:
        raise _unsupported(
            'egress policies under gVisor need net-raw = "true" in the configuration of the node\'s runsc'
        ) from error
    except OSError as error:
        raise _unsupported(f"this version of gVisor rejects the policy's tables: {error}") from error


def _replace(held: Held, ip4: socket.socket, ip6: socket.socket, *, nat: bool) -> None:
    """Write the tables. `nat`: also that of redirects; a table that was never written costs nothing per packet."""
    if nat:
        ip4.setsockopt(socket.IPPROTO_IP, _REPLACE_TABLE, held.nat)
    ip4.setsockopt(socket.IPPROTO_IP, _REPLACE_TABLE, held.filter4)
    ip6.setsockopt(socket.IPPROTO_IPV6, _REPLACE_TABLE, held.filter6)


def _unsupported(text: str) -> ApiError:
    return ApiError(409, "unsupported", text)


def _filter4(*, allow: bool, rules: list[Rule], proxied: dict[int, int]) -> bytes:
    matched, otherwise = (_ACCEPT, _DROP) if allow else (_DROP, _ACCEPT)
    unread = [] if allow else [(0, 0, port, port) for port in proxied]
    matching = _matching([*rules, *unread], matched=matched, otherwise=otherwise)
    output = [*_untouched(), *matching, _entry4(otherwise)]
    accept = [_entry4(_ACCEPT)]
    return _table(b"filter", {_INPUT: accept, _FORWARD: accept, _OUTPUT: output}, error=_entry4(None))


def _nat(*, rules: list[Rule], proxied: dict[int, int]) -> bytes:
    """Return the redirects to the proxy; what a rule matches is left to `filter`."""
    accept = [_entry4(_ACCEPT)]
    output = []
    if proxied:
        output += [*_untouched(), *_matching(rules, matched=_ACCEPT, otherwise=_ACCEPT)]
    for port, to in proxied.items():
        match, number = _ports([(port, port)]), to.to_bytes(2, "big")
        redirect = _REDIRECT.pack(_REDIRECT.size, b"REDIRECT", 0, 1, _BY_PORT, 0, 0, number, number)
        output.append(_entry4(redirect, protocol=_TCP, match=match))
    chains = {_PREROUTING: accept, _INPUT: accept, _OUTPUT: [*output, *accept], _POSTROUTING: accept}
    return _table(b"nat", chains, error=_entry4(None))


def _untouched() -> list[bytes]:
    """Return entries for traffic that no policy applies to: loopback and the sidecar's own."""
    return [
        _entry4(_ACCEPT, network=127 << 24, prefix=8),
        _entry4(_ACCEPT, match=_match(b"mark", 1, _MARKED)),
    ]


def _matching(rules: list[Rule], *, matched: int, otherwise: int) -> list[bytes]:
    entries = []
    ports: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for network, prefix, low, high in rules:
        if low:
            ports.setdefault((network, prefix), []).append((low, high))
        else:
            entries.append(_entry4(matched, network=network, prefix=prefix))
    if ports:
        # A match of ports would drop what has none.
        entries.append(_entry4(otherwise, protocol=_ICMP))
    for (network, prefix), ranges in ports.items():
        for at in range(0, len(ranges), _RANGES):
            match = _ports(ranges[at : at + _RANGES])
            entries.append(_entry4(matched, network=network, prefix=prefix, match=match))
    return entries


def _filter6(*, closed: bool) -> bytes:
    """Return the IPv6 table, in which no rule names an address; the sidecar needs neighbor discovery."""
    output = [
        _entry6(_ACCEPT, network="::1", prefix=128),
        _entry6(_ACCEPT, match=_match(b"mark", 1, _MARKED)),
        _entry6(_ACCEPT, network="fe80::", prefix=10, protocol=_ICMP6),
        _entry6(_ACCEPT, network="ff02::", prefix=16, protocol=_ICMP6),
        _entry6(_DROP if closed else _ACCEPT),
    ]
    accept = [_entry6(_ACCEPT)]
    return _table(b"filter", {_INPUT: accept, _FORWARD: accept, _OUTPUT: output}, error=_entry6(None))


def _table(name: bytes, chains: dict[int, list[bytes]], *, error: bytes) -> bytes:
    """Return a table with chains by hook, in order; the last entry of each is its default."""
    starts, ends, at = [0] * 5, [0] * 5, 0
    for hook, entries in chains.items():
        starts[hook] = at
        at += sum(len(entry) for entry in entries)
        ends[hook] = at - len(entries[-1])
    body = b"".join(entry for entries in chains.values() for entry in entries) + error
    count = 1 + sum(len(entries) for entries in chains.values())
    hooks = sum(1 << hook for hook in chains)
    return _HEAD.pack(name, hooks, count, len(body), *starts, *ends, count, 0) + body


def _entry4(
    verdict: int | bytes | None, *, network: int = 0, prefix: int = 0, protocol: int = 0, match: bytes = b""
) -> bytes:
    mask = 0xFFFFFFFF << 32 - prefix & 0xFFFFFFFF
    addresses = struct.pack("!IIII", 0, network & mask, 0, mask)
    return _entry(addresses + bytes(64) + struct.pack("=HBB", protocol, 0, 0), _PLACES, verdict, match)


def _entry6(
    verdict: int | None, *, network: str = "::", prefix: int = 0, protocol: int = 0, match: bytes = b""
) -> bytes:
    mask = ((1 << 128) - (1 << 128 - prefix)).to_bytes(16, "big")
    addresses = bytes(16) + socket.inet_pton(socket.AF_INET6, network) + bytes(16) + mask
    # without this flag the protocol is ignored
    header = addresses + bytes(64) + struct.pack("=HBBB3x", protocol, 0, int(protocol > 0), 0)
    return _entry(header, _PLACES6, verdict, match)


def _entry(header: bytes, places: struct.Struct, verdict: int | bytes | None, match: bytes) -> bytes:
    """Return one entry. `verdict`: a verdict, a target as bytes, or None for the end of the table."""
    target = verdict if isinstance(verdict, bytes) else _ERROR
    if isinstance(verdict, int):
        target = _VERDICT.pack(_VERDICT.size, b"", 0, verdict)
    to_target = len(header) + places.size + len(match)
    return header + places.pack(0, to_target, to_target + len(target), 0) + match + target


def _match(name: bytes, revision: int, data: bytes) -> bytes:
    return _MATCH.pack(_MATCH.size + len(data), name, revision) + data


def _ports(ranges: list[tuple[int, int]]) -> bytes:
    """Return one match for ports of TCP and UDP."""
    numbers = [port for each in ranges for port in each] + [0] * (15 - 2 * len(ranges))
    first = [1, 0] * len(ranges) + [0] * (15 - 2 * len(ranges))
    data = struct.pack("=BB15H15BB", _DESTINATION, 2 * len(ranges), *numbers, *first, 0)
    return _match(b"multiport", 1, data)


EVERYTHING = Held(allow=False, rules=[], proxied={})
