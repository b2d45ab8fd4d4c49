"""Whether this machine can hold an egress policy, found without asking Sandlot: where it can, a refusal is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

_UNIFIED = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")


def has_egress_policies() -> bool:
    return any(Path(place, "cgroup.controllers").exists() for place in _UNIFIED)


def skip_without_egress_policies() -> None:
    if not has_egress_policies():
        pytest.skip("needs control groups of version 2, whose programs hold an egress policy")
