"""Builds the paths and bodies of requests for files; what is None is left out."""

from __future__ import annotations

from sandlot._protocol import checks
from sandlot._protocol.messages import with_query

USER = str | int | None  # of the sandbox, by name or number


def write_route(path: str, *, mode: int | None, user: USER, owner: USER = None, group: USER = None) -> str:
    query = {"path": path, "mode": checks.octal(mode), "user": user, "owner": owner, "group": group}
    return with_query("/files", {**query, "parents": 1})


def given(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
