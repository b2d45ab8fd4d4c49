"""Defines which sandboxes a slot serves one after the other, and what a pool does that sets nothing."""

from __future__ import annotations

from enum import StrEnum


class ReusePolicy(StrEnum):
    """Who may get a pool's slot after its owner is done and a reset has found no difference from a fresh one."""

    NEVER = "never"
    TENANT = "tenant"  # the tenant that used it before


# Of a pool that does not set them, on one machine and on Kubernetes. The CRD and the SDK have copies; tests compare them.
POLICY = ReusePolicy.TENANT
MAX_USES = 100  # sandboxes
MAX_AGE = 3600  # seconds since the slot's start
