"""A policy of where a sandbox may send as BPF programs; loaded by the first policy, since it is memory that most never need.

One looks at every packet that leaves a socket of the sandbox; two more refuse a connect at once, which would
otherwise wait for an answer until its time is up.
"""

from __future__ import annotations

import socket
import struct

EGRESS, CONNECT4, CONNECT6 = 1, 10, 11  # the kernel's numbers of the places

_WITH_PORTS = (6, 17, 33, 132, 136)  # TCP, UDP, DCCP, SCTP, UDP-Lite: the port is at the same place
_SKB_PROTOCOL = 16
_ADDR_IP4, _ADDR_IP6, _ADDR_PORT = 4, 8, 24
_LOAD_BYTES = 26  # bpf_skb_load_bytes

# Where things are on the stack, from the frame pointer down.
_HEADER, _TARGET, _PORT, _WIDE = -24, -8, -32, -48


class Program:
    """Instructions as they are appended; jumps forward by label."""

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
        """Bytes of the packet from offset r2 on; one without them is refused."""
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


def programs(*, allow: bool, rules: list[tuple[int, int, int, int]]) -> dict[str, str]:
    """What the executor takes: code by place, in hex; nothing for a policy that holds nothing back."""
    if not allow and not rules:
        return {}
    places = (EGRESS, CONNECT4, CONNECT6)
    return {str(place): program(place, allow=allow, rules=rules).hex() for place in places}


def program(attach: int, *, allow: bool, rules: list[tuple[int, int, int, int]]) -> bytes:
    """A rule is (network, prefix, lowest port, highest port), 0 and 0 for any; `allow` is what a match means."""
    made = Program()
    made.op(0xBF, 6, 1)  # r6 = ctx
    made.op(0xB7, 8, 0, 0, 1)  # r8: the port is known
    if attach == EGRESS:
        _packet(made, otherwise=int(not allow))
    else:
        _connect(made, attach, otherwise=int(not allow))
    made.label("rules")
    made.op(0x71, 2, 10, _TARGET)  # r2 = first byte of the address
    made.op(0x55, 2, 0, 2, 127)
    made.answer(1)  # the machine's own, which sandboxes with its network share
    for number, rule in enumerate(rules):
        _rule(made, rule, allow=allow, over=f"rule {number}")
    made.answer(int(not allow))
    return made.code()


def _packet(made: Program, *, otherwise: int) -> None:
    made.op(0x61, 7, 6, _SKB_PROTOCOL)
    made.op(0x15, 7, 0, "ip4", socket.htons(0x0800))
    made.op(0x15, 7, 0, "ip6", socket.htons(0x86DD))
    made.answer(otherwise)
    made.label("ip6")
    made.op(0xB7, 2, 0, 0, 24)  # where the target is
    made.load_bytes(_WIDE, 16)
    _not_ip4(made, otherwise=otherwise)
    made.label("ip4")
    made.op(0xB7, 2, 0, 0, 0)
    made.load_bytes(_HEADER, 20)  # the target's place is at its end
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
    made.op(0x67, 2, 0, 0, 2)  # words of the header to bytes
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
    made.op(0x63, 10, 7, _TARGET)  # the last word, should it be an IPv4 address in IPv6's dress
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
    """Loopback, else `otherwise`: no rule names an IPv6 address."""
    for word in range(4):
        made.op(0x61, 2, 10, _WIDE + 4 * word)
        made.op(0xDC, 2, 0, 0, 32)
        made.op(0x55, 2, 0, "elsewhere", int(word == 3))
    made.answer(1)
    made.label("elsewhere")
    made.answer(otherwise)


def _rule(made: Program, rule: tuple[int, int, int, int], *, allow: bool, over: str) -> None:
    network, prefix, low, high = rule
    mask = 0xFFFFFFFF << 32 - prefix & 0xFFFFFFFF
    made.op(0x61, 2, 10, _TARGET)
    made.op(0x54, 2, 0, 0, socket.htonl(mask))  # 32 bits
    made.op(0x56, 2, 0, over, socket.htonl(network & mask))
    if low:
        # Read anew each time: what the verifier learned of a register would make it follow each rule on its own.
        made.op(0x15, 8, 0, over, 0)
        made.op(0x69, 2, 10, _PORT)
        made.op(0xDC, 2, 0, 0, 16)
        made.op(0xA5, 2, 0, over, low)
        made.op(0x25, 2, 0, over, high)
    made.answer(int(allow))
    made.label(over)
