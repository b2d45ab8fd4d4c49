"""Creates each instance's control groups, version 1 or 2, where writable; the executor sets the limits."""

from .base import Cgroups, NoCgroups, Usage
from .find import find_cgroups
from .mounts import mount_points
from .remove import remove_groups

__all__ = ["Cgroups", "NoCgroups", "Usage", "find_cgroups", "mount_points", "remove_groups"]
