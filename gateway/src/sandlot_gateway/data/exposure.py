"""One exposure, and what an exposure may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sandlot_contract.ids import SandboxId

MAX_NAME = 50  # characters


class ExposeError(Exception):
    """An exposure that cannot be made; `field` names the argument at fault, or is None when the host is."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Exposure:
    """`id` is the right to use it: 144 random bits, so whoever has the address needs no other credential."""

    id: str
    sandbox_id: SandboxId
    tenant: str
    port: int  # in the sandbox
    name: str | None
    protocol: Literal["HTTP", "TCP"]
    created_at: float  # Unix seconds
    listen_host: str | None = None  # TCP only
    listen_port: int | None = None  # TCP only

    @property
    def path(self) -> str:
        """Where an HTTP exposure is, below the gateway's address."""
        return f"/expose/{self.id}/"


def checked(port: int, *, name: str | None, protocol: str) -> Literal["HTTP", "TCP"]:
    """The protocol that was meant. Raises ExposeError."""
    if not 1 <= port <= 65535:
        raise ExposeError("port must be between 1 and 65535", field="port")
    if name is not None and len(name) > MAX_NAME:
        raise ExposeError(f"name must have at most {MAX_NAME} characters", field="name")
    kind = protocol.upper()
    if kind not in ("HTTP", "TCP"):
        raise ExposeError("protocol must be HTTP or TCP", field="protocol")
    return "HTTP" if kind == "HTTP" else "TCP"
