"""Defines what a sandbox knows of its group: its place in it, and the services of the members."""

from __future__ import annotations

from typing import Any

import msgspec

from sandlot_gateway.core.group_turns import GroupId


class GroupRef(msgspec.Struct, frozen=True):
    """The group that a sandbox was created with: `size` sandboxes or none."""

    id: GroupId
    size: int
    index: int  # of this one


class GroupServices(msgspec.Struct, frozen=True):
    """The services of a sandbox's group: their ports by name, and the name of the one that it is itself, if any."""

    ports: dict[str, list[int]]
    own: str | None = None

    def document(self) -> list[dict[str, Any]]:
        """Return what a claim says of them: where each is in this sandbox. Addresses are the same in all of the group."""
        found: list[dict[str, Any]] = []
        for number, name in enumerate(sorted(self.ports), start=1):
            itself = name == self.own
            address = "127.0.0.1" if itself else f"{_SERVICES}.{number}"
            found.append({"name": name, "address": address, "ports": [] if itself else self.ports[name]})
        return found


_SERVICES = "127.83.0"  # of the loopback network, with no meaning to other programs that we know

# Message of the ends of its members, which other gateways and later runs of this one read.
GROUP_FAILED = "its group came to nothing"
