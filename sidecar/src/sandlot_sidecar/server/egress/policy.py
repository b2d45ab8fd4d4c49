"""Decides about one connection by a policy, and derives the kernel's rules; imported by the first policy."""

from __future__ import annotations

from .body import PORTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Rule = tuple[int, int, int, int]


# Addresses of private, shared and local networks, which include a cluster's pods and services.
_PRIVATE = (
    (10 << 24, 8), (0x6440 << 16, 10), (127 << 24, 8), (0xA9FE << 16, 16), (0xAC10 << 16, 12), (0xC0A8 << 16, 16),
)  # fmt: skip


def _is_private(address: int) -> bool:
    return any(address >> 32 - prefix == network >> 32 - prefix for network, prefix in _PRIVATE)


class Policy:
    """A policy with `rules` as `body.parse` returns them."""

    def __init__(self, *, allow: bool, rules: list[list[Any]]) -> None:
        self.allow = allow
        self._rules: list[Rule] = [tuple(rule) for rule in rules if len(rule) == 4]
        named = [rule for rule in rules if len(rule) == 2]
        self._names = {(name, port) for name, given in named for port in ((given,) if given else PORTS)}
        self.ports = sorted({port for _, port in self._names})  # ports whose connections have to be read

    def lets_name(self, name: str, port: int) -> bool:
        """Return whether the policy lets a connection to this host name through."""
        return self._has_name(name, port) == self.allow

    def lets_address(self, address: int, port: int) -> bool:
        """Return whether a host name that is let through may resolve to this address."""
        if self.allow:
            # The owner of a name decides where it leads, and the sidecar may reach more than the sandbox.
            return not _is_private(address) or self.has_address(address, port)
        return not self.has_address(address, port)

    def _has_name(self, name: str, port: int) -> bool:
        if (name, port) in self._names:
            return True
        while name:
            _, _, name = name.partition(".")
            if (f"*.{name}", port) in self._names:
                return True
        return False

    def has_address(self, address: int, port: int) -> bool:
        """Return whether an address rule matches."""
        return any(
            address >> 32 - prefix == network >> 32 - prefix and (not low or low <= port <= high)
            for network, prefix, low, high in self._rules
        )

    def rules(self, name_servers: list[int]) -> list[Rule]:
        """Return the address rules, with the name servers if hosts are allowed by name."""
        asked = [(address, 32, 53, 53) for address in name_servers] if self.allow and self.ports else []
        return self._rules + asked
