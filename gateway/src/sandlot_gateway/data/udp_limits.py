"""Limits the clients of UDP exposures, and tells what was carried and dropped."""

from __future__ import annotations

from typing import Protocol

from ..metrics import DatagramDirection, DropReason

IDLE = 60.0  # seconds without a datagram of the client; an answer does not count: the address may be a forged one
ANSWERS = 64  # bytes to a client for each byte from it, with headers; a download over QUIC needs some 40
FIRST_ANSWERS = 64 * 1024  # bytes to it besides
HEADERS = 28  # bytes of each datagram
FLOWS = 256  # clients of one exposure
ALL_FLOWS = 2048  # of all exposures of one gateway; each has two descriptors
YOUNG = 5.0  # seconds in which a client keeps its place; else forged senders would cost a fork in the sandbox each
ALL_BYTES = 128 * 1024 * 1024  # that wait in the gateway for all clients; one of the chart's has 1 GiB
# Bytes of one client that wait for the sidecar, or for a turn, before the flow stops reading.
HIGH = 32 * 1024
KERNEL_HIGH = 64 * 1024  # bytes in each buffer of the kernel, which counts towards the gateway's memory


class Observer(Protocol):
    """Counts datagrams and clients."""

    def udp_flows(self, flows: int) -> None: ...

    def datagrams_carried(self, direction: DatagramDirection, datagrams: int) -> None: ...

    def datagrams_dropped(self, reason: DropReason, datagrams: int) -> None: ...


class NotCounted:
    """An observer for a gateway without metrics."""

    def udp_flows(self, flows: int) -> None:
        return

    def datagrams_carried(self, direction: DatagramDirection, datagrams: int) -> None:
        return

    def datagrams_dropped(self, reason: DropReason, datagrams: int) -> None:
        return
