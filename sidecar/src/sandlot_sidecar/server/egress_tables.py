"""A policy of where a pod may send as tables of gVisor's packet filter, which holds no programs; loaded by the first policy.

They hold for all that the pod sends but for what is marked as the sidecar's own. The layouts are Linux' (ip_tables.h,
ip6_tables.h, x_tables.h).
"""

from __future__ import annotations

import socket
import struct

from .errors import ApiError
from .mark import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    Rule = tuple[int, int, int, int]

MOST_BYTES = 32 << 10  # gVisor's bound of one socket option

_REPLACE = 64  # IPT_SO_SET_REPLACE and IP6T_SO_SET_REPLACE
_FILTER_HOOKS = 0b01110  # input, forward, output
_ACCEPT, _DROP = -2, -1
_RANGES = 7  # that one match of ports takes
_DESTINATION = 1
_ICMP, _ICMP6 = 1, 58

# The same in both: an entry's offsets and counters, a match's and a target's head, a table's head.
_PLACES, _MATCH, _VERDICT = struct.Struct("=IHHI16x"), struct.Struct("=H29sB"), struct.Struct("=H29sBi4x")
_PLACES6 = struct.Struct("=IHHI4x16x")
_HEAD = struct.Struct("=32sIII5I5IIQ")
_ERROR = struct.pack("=H29sB30s2x", 64, b"ERROR", 0, b"ERROR")
_MARKED = struct.pack("=IIB7x", MARK, 0xFFFFFFFF, 0)


def hold(*, allow: bool, rules: list[Rule], instead_of: tuple[bool, list[Rule]]) -> None:
    """Put it in place of another; that one still holds where this is not taken. Raises a 409."""
    if (allow, rules) == instead_of == (False, []):
        return  # there is nothing to hold, nor was there
    four, six = _table4(allow=allow, rules=rules), _table6(allow=allow)
    if len(four) > MOST_BYTES:
        text = f"gVisor takes {MOST_BYTES} bytes of rules, these are {len(four)}: fewer networks, or fewer with ports"
        raise _unsupported(text)
    try:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as ip4,
            socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_TCP) as ip6,
        ):
            ip4.setsockopt(socket.IPPROTO_IP, _REPLACE, four)
            try:
                ip6.setsockopt(socket.IPPROTO_IPV6, _REPLACE, six)
            except OSError:
                before = _table4(allow=instead_of[0], rules=instead_of[1])
                ip4.setsockopt(socket.IPPROTO_IP, _REPLACE, before)
                raise
    except PermissionError as error:
        raise _unsupported(
            'under gVisor it takes net-raw = "true" in the configuration of the node\'s runsc'
        ) from error
    except OSError as error:
        raise _unsupported(f"this version of gVisor does not take it: {error}") from error


def _unsupported(text: str) -> ApiError:
    return ApiError(409, "unsupported", text)


def _table4(*, allow: bool, rules: list[Rule]) -> bytes:
    matched, otherwise = (_ACCEPT, _DROP) if allow else (_DROP, _ACCEPT)
    entries = [
        _entry4(_ACCEPT, network=127 << 24, prefix=8),
        _entry4(_ACCEPT, match=_match(b"mark", 1, _MARKED)),
    ]
    ports: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for network, prefix, low, high in rules:
        if low:
            ports.setdefault((network, prefix), []).append((low, high))
        else:
            entries.append(_entry4(matched, network=network, prefix=prefix))
    if ports:
        # What has no ports would be dropped by a match of them.
        entries.append(_entry4(otherwise, protocol=_ICMP))
    for (network, prefix), ranges in ports.items():
        for at in range(0, len(ranges), _RANGES):
            match = _ports(ranges[at : at + _RANGES])
            entries.append(_entry4(matched, network=network, prefix=prefix, match=match))
    return _table([*entries, _entry4(otherwise)], accept=_entry4(_ACCEPT), error=_entry4(None))


def _table6(*, allow: bool) -> bytes:
    """No rule names an IPv6 address; neighbours have to be found for the sidecar's sake."""
    entries = [
        _entry6(_ACCEPT, network="::1", prefix=128),
        _entry6(_ACCEPT, match=_match(b"mark", 1, _MARKED)),
        _entry6(_ACCEPT, network="fe80::", prefix=10, protocol=_ICMP6),
        _entry6(_ACCEPT, network="ff02::", prefix=16, protocol=_ICMP6),
        _entry6(_DROP if allow else _ACCEPT),
    ]
    return _table(entries, accept=_entry6(_ACCEPT), error=_entry6(None))


def _table(output: list[bytes], *, accept: bytes, error: bytes) -> bytes:
    """One for each of input and forward that accepts, then those of output, of which the last takes what is left."""
    entries = [accept, accept, *output, error]
    places = [0]
    for entry in entries:
        places.append(places[-1] + len(entry))
    starts = (0, places[0], places[1], places[2], 0)
    ends = (0, places[0], places[1], places[len(entries) - 2], 0)
    head = _HEAD.pack(b"filter", _FILTER_HOOKS, len(entries), places[-1], *starts, *ends, len(entries), 0)
    return head + b"".join(entries)


def _entry4(
    verdict: int | None, *, network: int = 0, prefix: int = 0, protocol: int = 0, match: bytes = b""
) -> bytes:
    mask = 0xFFFFFFFF << 32 - prefix & 0xFFFFFFFF
    addresses = struct.pack("!IIII", 0, network & mask, 0, mask)
    return _entry(addresses + bytes(64) + struct.pack("=HBB", protocol, 0, 0), _PLACES, verdict, match)


def _entry6(
    verdict: int | None, *, network: str = "::", prefix: int = 0, protocol: int = 0, match: bytes = b""
) -> bytes:
    mask = ((1 << 128) - (1 << 128 - prefix)).to_bytes(16, "big")
    addresses = bytes(16) + socket.inet_pton(socket.AF_INET6, network) + bytes(16) + mask
    # Without the flag the protocol is not looked at.
    header = addresses + bytes(64) + struct.pack("=HBBB3x", protocol, 0, int(protocol > 0), 0)
    return _entry(header, _PLACES6, verdict, match)


def _entry(header: bytes, places: struct.Struct, verdict: int | None, match: bytes) -> bytes:
    target = _ERROR if verdict is None else _VERDICT.pack(_VERDICT.size, b"", 0, verdict)
    to_target = len(header) + places.size + len(match)
    return header + places.pack(0, to_target, to_target + len(target), 0) + match + target


def _match(name: bytes, revision: int, data: bytes) -> bytes:
    return _MATCH.pack(_MATCH.size + len(data), name, revision) + data


def _ports(ranges: list[tuple[int, int]]) -> bytes:
    """One match for ports of TCP and UDP alike."""
    numbers = [port for each in ranges for port in each] + [0] * (15 - 2 * len(ranges))
    first = [1, 0] * len(ranges) + [0] * (15 - 2 * len(ranges))
    data = struct.pack("=BB15H15BB", _DESTINATION, 2 * len(ranges), *numbers, *first, 0)
    return _match(b"multiport", 1, data)
