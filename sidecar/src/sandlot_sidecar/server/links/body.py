"""The services in the body of a claim: validation."""

from __future__ import annotations

from ...core.errors import bad_input

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_SERVICES = 64
MOST_PORTS = 16  # of a service
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_BYTES = frozenset(map(str, range(256)))
_LABEL = _LETTERS | frozenset("0123456789-")


def parse(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the services: `name`, the `address` that it gets here, and the `ports` to listen on. Raises a 400."""
    services = body.get("services")
    if services is None:
        return []
    if not isinstance(services, list) or len(services) > MOST_SERVICES or not all(map(_good, services)):
        text = (
            f"services must be a list of at most {MOST_SERVICES} of {{name, address, ports}}: a DNS label, an address"
            f" of 127.0.0.0/8, and at most {MOST_PORTS} ports"
        )
        raise bad_input(text, field="services")
    return [{name: service[name] for name in ("name", "address", "ports")} for service in services]


def _good(service: Any) -> bool:
    if not isinstance(service, dict):
        return False
    name, address, ports = (service.get(key) for key in ("name", "address", "ports"))
    return (
        isinstance(name, str)
        and 1 <= len(name) <= 63
        and name[0] in _LETTERS
        and name[-1] != "-"
        and set(name) <= _LABEL
        and isinstance(address, str)
        and _is_loopback(address)
        and isinstance(ports, list)
        and len(ports) <= MOST_PORTS
        and all(type(port) is int and 1 <= port <= 65535 for port in ports)
    )


def _is_loopback(address: str) -> bool:
    parts = address.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part in _BYTES for part in parts)
