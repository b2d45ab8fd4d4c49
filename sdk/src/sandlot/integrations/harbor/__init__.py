"""Sandlot as an environment of harbor: `harbor run -e sandlot.integrations.harbor:SandlotEnvironment …`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandlot.integrations.harbor.environment import SandlotEnvironment
    from sandlot.integrations.harbor.losses import SandboxEndedByCode, SandboxInfrastructureError

__all__ = ["SandboxEndedByCode", "SandboxInfrastructureError", "SandlotEnvironment"]


def __getattr__(name: str) -> object:
    # Only the environment needs harbor, whose import takes seconds.
    if name not in __all__:
        raise AttributeError(f"module 'sandlot.integrations.harbor' has no attribute {name!r}")
    module = "environment" if name == "SandlotEnvironment" else "losses"
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return value
