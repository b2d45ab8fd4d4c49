"""What a policy says of one connection, and which rules of it are the kernel's; loaded by the first policy."""

from __future__ import annotations

from .body import PORTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Rule = tuple[int, int, int, int]


# Addresses of private, shared and local networks, so also of a cluster's pods and services.
_PRIVATE = (
    (10 << 24, 8), (0x6440 << 16, 10), (127 << 24, 8), (0xA9FE << 16, 16), (0xAC10 << 16, 12), (0xC0A8 << 16, 16),
)  # fmt: skip


def _is_private(address: int) -> bool:
    return any(address >> 32 - prefix == network >> 32 - prefix for network, prefix in _PRIVATE)


class Policy:
    """`rules` as `body.parse` gives them."""

    def __init__(self, *, allow: bool, rules: list[list[Any]]) -> None:
        self.allow = allow
        self._rules: list[Rule] = [tuple(rule) for rule in rules if len(rule) == 4]
        named = [rule for rule in rules if len(rule) == 2]
        self._names = {(name, port) for name, given in named for port in ((given,) if given else PORTS)}
        self.ports = sorted({port for _, port in self._names})  # whose connections have to be read

    def lets_name(self, name: str, port: int) -> bool:
        """Whether it lets through what asked for this name."""
        return self._has_name(name, port) == self.allow

    def lets_address(self, address: int, port: int) -> bool:
        """Whether a name that it lets through may be at this address."""
        if self.allow:
            # Whoever owns the name says where it leads, and the sidecar may reach more than the sandbox.
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
        """Whether a rule of addresses matches."""
        return any(
            address >> 32 - prefix == network >> 32 - prefix and (not low or low <= port <= high)
            for network, prefix, low, high in self._rules
        )

    def rules(self, name_servers: list[int]) -> list[Rule]:
        """Of addresses; where names are allowed, so are the servers that they are asked of."""
        asked = [(address, 32, 53, 53) for address in name_servers] if self.allow and self.ports else []
        return self._rules + asked
