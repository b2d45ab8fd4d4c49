"""Compiles an egress policy to BPF programs; imported by the first policy, as most sandboxes have none.

One program filters every packet that leaves a socket of the sandbox. Two more reject a connect at once, which
would otherwise run into its timeout, and redirect to the proxy what it has to read.
"""

from __future__ import annotations

import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    Rule = tuple[int, int, int, int]

EGRESS, CONNECT4, CONNECT6 = 1, 10, 11  # the kernel's attach types

_WITH_PORTS = (6, 17, 33, 132, 136)  # TCP, UDP, DCCP, SCTP, UDP-Lite: all have the port at the same offset
_SKB_PROTOCOL = 16
_ADDR_IP4, _ADDR_IP6, _ADDR_PORT, _ADDR_PROTOCOL = 4, 8, 24, 36
_TCP = 6
_LOAD_BYTES = 26  # bpf_skb_load_bytes

# Where the proxies listen: not an address of the machine's own, nor one that a sandbox connects to by itself, as
# another sandbox's proxy would let it through.
PROXY = "127.77.0.1"
_PROXY = socket.htonl(0x7F4D0001)  # in the byte order of the instructions

# Offsets on the stack, from the frame pointer down.
_HEADER, _TARGET, _PORT, _WIDE = -24, -8, -32, -48


class Program:
    """A list of instructions under construction, with forward jumps to labels."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, int, int, int | str, int]] = []
        self._labels: dict[str, int] = {}

    def op(self, code: int, dst: int = 0, src: int = 0, off: int | str = 0, imm: int = 0) -> None:
        self._lines.append((code, dst, src, off, imm))

    def label(self, name: str) -> None:
        self._labels[name] = len(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def answer(self, verdict: int) -> None:
        self.op(0xB7, 0, 0, 0, verdict)  # r0 = verdict
        self.op(0x95)  # exit

    def load_bytes(self, to: int, count: int) -> None:
        """Load bytes of the packet from offset r2 on; drop a packet that has fewer."""
        self.op(0xBF, 1, 6)  # r1 = ctx
        self.op(0xBF, 3, 10)  # r3 = fp
        self.op(0x07, 3, 0, 0, to)  # r3 += to
        self.op(0xB7, 4, 0, 0, count)
        self.op(0x85, 0, 0, 0, _LOAD_BYTES)
        self.op(0x15, 0, 0, 2, 0)  # if r0 == 0 skip
        self.answer(0)

    def code(self) -> bytes:
        parts = []
        for at, (code, dst, src, off, imm) in enumerate(self._lines):
            if isinstance(off, str):
                off = self._labels[off] - at - 1
            parts.append(struct.pack("<BBhI", code, src << 4 | dst, off, imm & 0xFFFFFFFF))
        return b"".join(parts)


def programs(*, allow: bool, rules: list[Rule], proxied: dict[int, int]) -> dict[str, str]:
    """Return the executor's `programs`: hex code by attach type; empty for a policy without effect."""
    if not allow and not rules and not proxied:
        return {}
    return {
        str(place): program(place, allow=allow, rules=rules, proxied=proxied).hex()
        for place in (EGRESS, CONNECT4, CONNECT6)
    }


def program(attach: int, *, allow: bool, rules: list[Rule], proxied: dict[int, int]) -> bytes:
    """Return the code of one program.

    A rule is (network, prefix, lowest port, highest port), ports 0 and 0 for any; `allow` is what a match means.


    `proxied` maps the ports that have to be read to the proxy's ports; what no rule matches is redirected there.
    """
    made = Program()
    made.op(0xBF, 6, 1)  # r6 = ctx
    made.op(0xB7, 8, 0, 0, 1)  # r8 = 1: the port is known
    # What passes over IPv6, which no rule names: nothing if names are denied, as no proxy would read it.
    otherwise = int(not allow and not proxied)
    if attach == EGRESS:
        _packet(made, otherwise=otherwise)
    else:
        _connect(made, attach, otherwise=otherwise)
    made.label("rules")
    _to_proxies(made, attach, proxied)
    made.op(0x71, 2, 10, _TARGET)  # r2 = first byte of the address
    made.op(0x55, 2, 0, 2, 127)
    made.answer(1)  # loopback, which sandboxes with the machine's network share
    for number, rule in enumerate(rules):
        _rule(made, rule, allow=allow, over=f"rule {number}")
    for port, to in proxied.items():
        if attach != EGRESS:
            _redirect(made, attach, port, to)
        elif not allow:
            _rule(made, (0, 0, port, port), allow=False, over=f"unread {port}")
    made.answer(int(not allow))
    return made.code()


def _to_proxies(made: Program, attach: int, proxied: dict[int, int]) -> None:
    """Reject connects to proxies, and packets except those to this sandbox's own proxies (sent by `_redirect`)."""
    made.op(0x61, 2, 10, _TARGET)
    made.op(0x56, 2, 0, "no proxy", _PROXY)
    if attach == EGRESS and proxied:
        made.op(0x15, 8, 0, "no port", 0)
        made.op(0x69, 2, 10, _PORT)
        made.op(0xDC, 2, 0, 0, 16)
        for port in proxied.values():
            made.op(0x55, 2, 0, 2, port)
            made.answer(1)
        made.label("no port")
    made.answer(0)
    made.label("no proxy")


def _redirect(made: Program, attach: int, port: int, to: int) -> None:
    """Redirect TCP connects to this port to the proxy and reject others, whose content nothing would read."""
    over = f"proxied {port}"
    made.op(0x69, 2, 10, _PORT)
    made.op(0xDC, 2, 0, 0, 16)
    made.op(0x55, 2, 0, over, port)
    made.op(0x61, 2, 6, _ADDR_PROTOCOL)
    made.op(0x15, 2, 0, 2, _TCP)
    made.answer(0)
    made.op(0xB4, 2, 0, 0, _PROXY)
    # Of an IPv4-mapped IPv6 address only the last word changes.
    made.op(0x63, 6, 2, _ADDR_IP4 if attach == CONNECT4 else _ADDR_IP6 + 12)
    made.op(0xB4, 2, 0, 0, socket.htons(to))
    made.op(0x63, 6, 2, _ADDR_PORT)
    made.answer(1)
    made.label(over)


def _packet(made: Program, *, otherwise: int) -> None:
    made.op(0x61, 7, 6, _SKB_PROTOCOL)
    made.op(0x15, 7, 0, "ip4", socket.htons(0x0800))
    made.op(0x15, 7, 0, "ip6", socket.htons(0x86DD))
    made.answer(otherwise)
    made.label("ip6")
    made.op(0xB7, 2, 0, 0, 24)  # offset of the destination address
    made.load_bytes(_WIDE, 16)
    _not_ip4(made, otherwise=otherwise)
    made.label("ip4")
    made.op(0xB7, 2, 0, 0, 0)
    made.load_bytes(_HEADER, 20)  # the destination is at the end of these
    made.op(0x69, 2, 10, _HEADER + 6)
    made.op(0xDC, 2, 0, 0, 16)  # to host order
    made.op(0x57, 2, 0, 0, 0x1FFF)
    made.op(0x55, 2, 0, "portless", 0)  # a later fragment
    made.op(0x71, 2, 10, _HEADER + 9)
    for number in _WITH_PORTS:
        made.op(0x15, 2, 0, "ports", number)
    made.label("portless")
    made.op(0xB7, 8, 0, 0, 0)
    made.op(0x05, 0, 0, "rules")
    made.label("ports")
    made.op(0x71, 2, 10, _HEADER)
    made.op(0x57, 2, 0, 0, 15)
    made.op(0x67, 2, 0, 0, 2)  # header length in words to bytes
    made.op(0x07, 2, 0, 0, 2)
    made.load_bytes(_PORT, 2)


def _connect(made: Program, attach: int, *, otherwise: int) -> None:
    made.op(0x61, 7, 6, _ADDR_PORT)
    made.op(0x6B, 10, 7, _PORT)
    if attach == CONNECT4:
        made.op(0x61, 7, 6, _ADDR_IP4)
        made.op(0x63, 10, 7, _TARGET)
        return
    for word in range(4):
        made.op(0x61, 7, 6, _ADDR_IP6 + 4 * word)
        made.op(0x63, 10, 7, _WIDE + 4 * word)
    made.op(0x63, 10, 7, _TARGET)  # the last word, in case it is an IPv4-mapped IPv6 address
    made.op(0x61, 2, 10, _WIDE)
    made.op(0x55, 2, 0, "wide", 0)
    made.op(0x61, 2, 10, _WIDE + 4)
    made.op(0x55, 2, 0, "wide", 0)
    made.op(0x61, 2, 10, _WIDE + 8)
    made.op(0xDC, 2, 0, 0, 32)
    made.op(0x15, 2, 0, "rules", 0xFFFF)
    made.label("wide")
    _not_ip4(made, otherwise=otherwise)


def _not_ip4(made: Program, *, otherwise: int) -> None:
    """Accept loopback, otherwise return `otherwise`: no rule names an IPv6 address."""
    for word in range(4):
        made.op(0x61, 2, 10, _WIDE + 4 * word)
        made.op(0xDC, 2, 0, 0, 32)
        made.op(0x55, 2, 0, "elsewhere", int(word == 3))
    made.answer(1)
    made.label("elsewhere")
    made.answer(otherwise)


def _rule(made: Program, rule: Rule, *, allow: bool, over: str) -> None:
    network, prefix, low, high = rule
    mask = 0xFFFFFFFF << 32 - prefix & 0xFFFFFFFF
    made.op(0x61, 2, 10, _TARGET)
    made.op(0x54, 2, 0, 0, socket.htonl(mask))  # 32 bits
    made.op(0x56, 2, 0, over, socket.htonl(network & mask))
    if low:
        # Loaded each time: the verifier would track what it knows of a register along each rule separately.
        made.op(0x15, 8, 0, over, 0)
        made.op(0x69, 2, 10, _PORT)
        made.op(0xDC, 2, 0, 0, 16)
        made.op(0xA5, 2, 0, over, low)
        made.op(0x25, 2, 0, over, high)
    made.answer(int(allow))
    made.label(over)
