"""Sandlot as an environment of harbor: `harbor run -e sandlot.integrations.harbor:SandlotEnvironment …`."""

from sandlot.integrations.harbor.environment import SandlotEnvironment
from sandlot.integrations.harbor.losses import SandboxEndedByCode, SandboxInfrastructureError

__all__ = ["SandboxEndedByCode", "SandboxInfrastructureError", "SandlotEnvironment"]
