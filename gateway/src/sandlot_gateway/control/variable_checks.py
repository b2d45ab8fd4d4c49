"""Checks the variables that a request sets."""

from __future__ import annotations

from collections.abc import Mapping

from sandlot_gateway.core.variables import ENVIRONMENT_BYTES, VARIABLE_BYTES, size_of


def check_variables(environment: Mapping[str, str], secrets: Mapping[str, str]) -> None:
    """Check names and sizes of variables and secrets. Raises ValueError, which begins with the field."""
    total = 0
    for field, variables in (("environment_vars", environment), ("secrets", secrets)):
        for name, value in variables.items():
            check_name(name, field=field)
            size = size_of(name, value)
            if size > VARIABLE_BYTES:
                raise ValueError(f"{field}: {name[:80]!r} is larger than {VARIABLE_BYTES} bytes")
            total += size
    if total > ENVIRONMENT_BYTES:
        raise ValueError(
            f"environment_vars and secrets are larger than {ENVIRONMENT_BYTES} bytes together: write files instead"
        )


def check_name(name: str, *, field: str) -> None:
    """Raise ValueError if a variable cannot have this name."""
    if not name or "=" in name or "\x00" in name:
        raise ValueError(f"{field}: {name[:80]!r} is not a valid variable name")
