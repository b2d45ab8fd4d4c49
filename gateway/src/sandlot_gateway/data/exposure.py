"""Defines an exposure and validates its fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from sandlot_contract.ids import SandboxId

MAX_NAME = 50  # characters
ExposureProtocol = Literal["HTTP", "TCP", "UDP"]
PROTOCOLS: tuple[ExposureProtocol, ...] = get_args(ExposureProtocol)


class ExposeError(Exception):
    """Raised when an exposure cannot be created; `field` is the argument at fault, None if the host is."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Exposure:
    """An exposed port of a sandbox. `id` has 144 random bits and is the only credential needed to use it."""

    id: str
    sandbox_id: SandboxId
    tenant: str
    port: int  # in the sandbox
    name: str | None
    protocol: ExposureProtocol
    created_at: float  # Unix seconds
    listen_host: str | None = None  # TCP and UDP
    listen_port: int | None = None  # TCP and UDP

    @property
    def path(self) -> str:
        """The URL path of an HTTP exposure on the gateway."""
        return f"/expose/{self.id}/"


def checked(port: int, *, name: str | None, protocol: str) -> ExposureProtocol:
    """Validate the fields and return the protocol in upper case. Raises ExposeError."""
    if not 1 <= port <= 65535:
        raise ExposeError("port must be between 1 and 65535", field="port")
    if name is not None and len(name) > MAX_NAME:
        raise ExposeError(f"name must have at most {MAX_NAME} characters", field="name")
    for kind in PROTOCOLS:
        if kind == protocol.upper():
            return kind
    raise ExposeError("protocol must be HTTP, TCP or UDP", field="protocol")
