"""Parses a range of ports, `FIRST-LAST`."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, StringConstraints


def port_range(text: str | None) -> range:
    """Return the ports, none for None. Raises ValueError."""
    if text is None:
        return range(0)
    first, _, last = text.partition("-")
    if not 1 <= int(first) <= int(last) <= 65535:
        raise ValueError(f"{text} must be a range of ports from 1 to 65535")
    return range(int(first), int(last) + 1)


def _checked(text: str) -> str:
    port_range(text)
    return text


PortRange = Annotated[str, StringConstraints(pattern=r"^\d{1,5}-\d{1,5}$"), AfterValidator(_checked)]
