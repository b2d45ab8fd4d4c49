"""What a create over E2B's wire says of its sandbox's ports, which the sandbox keeps through pauses and forks."""

from __future__ import annotations

import msgspec


class E2bPorts(msgspec.Struct, frozen=True, omit_defaults=True):
    """`public`: without a token, if the operator allows that; `host`: sent to apps in place of the name asked for."""

    public: bool = True
    host: str | None = None
