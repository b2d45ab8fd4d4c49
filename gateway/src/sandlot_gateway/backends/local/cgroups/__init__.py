"""CPU, memory and process limits of an instance by control groups, version 1 or 2, where they can be written."""

from .base import Cgroups, Limits, NoCgroups, Usage
from .find import find_cgroups
from .remove import remove_groups

__all__ = ["Cgroups", "Limits", "NoCgroups", "Usage", "find_cgroups", "remove_groups"]
