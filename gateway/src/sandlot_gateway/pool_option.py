"""Parses the setting of warm pools."""

from __future__ import annotations

from sandlot_contract.template import Template

from sandlot_gateway.core.instances import PoolSpec


def parse_pool(text: str) -> PoolSpec:
    """Parse `NAME=N` or `NAME=IMAGE:N`. Raises ValueError."""
    name, equals, rest = text.partition("=")
    image, colon, size = rest.rpartition(":")
    if not equals or not name or not size.isdigit() or (colon and not image):
        raise ValueError(f"pool {text!r} must be NAME=N or NAME=IMAGE:N")
    return PoolSpec(name=name, template=Template(image=image or "host"), size=int(size))
