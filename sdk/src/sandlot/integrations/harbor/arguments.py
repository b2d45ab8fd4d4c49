"""Values of harbor's tasks as arguments of the SDK."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from harbor.models.task.config import NetworkPolicy


def allowed(policy: NetworkPolicy) -> list[str]:
    """Return the hosts of a policy that is not public: none at all with `no-network`."""
    return list(policy.allowed_hosts)


def mebibytes(size: int | None) -> str | None:
    return f"{size}MiB" if size else None


def account(user: str | int | None) -> str | int | None:
    """Return a user as its name, or as a number if harbor gives one as text."""
    return int(user) if isinstance(user, str) and user.isdigit() else user
