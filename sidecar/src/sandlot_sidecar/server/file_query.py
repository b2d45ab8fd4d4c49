"""Validates what requests about files share: the path, and the user that they act as."""

from __future__ import annotations

from ..core.errors import ApiError, bad_input
from . import fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def path(value: str | None, name: str = "path", *, workdir: str | None) -> str:
    """Return an absolute path; a relative one starts at the workdir. Raises ApiError."""
    if not value:
        raise bad_input(f"{name} is required", field=name)
    fields.clean(value, name)
    if len(value) > 4096:
        raise ApiError(400, "bad_path", f"{name} is longer than 4096 characters: shorten it", field=name)
    return value if value.startswith("/") else f"{workdir or '/'}/{value}"


def acting(given: dict[str, Any]) -> dict[str, Any]:
    """Return the user that a request acts as, if it names one. Raises a 400."""
    if given.get("user") == "":
        # Of a caller whose variable is empty, who would get root's rights instead of a user's.
        raise bad_input("user must not be empty: name a user, or leave it out to act as root", field="user")
    user = fields.user(given, "user")
    return {} if user is None else {"user": user}
