"""Registers the sandbox provider `sandlot` of Inspect AI, which finds this module by its entry point."""

from sandlot.integrations.inspect.environment import SandlotSandboxEnvironment

__all__ = ["SandlotSandboxEnvironment"]
