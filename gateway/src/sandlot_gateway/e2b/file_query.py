"""The query of a request to /files, parsed once: what a signature was checked for is what is read or written."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl

from sandlot_gateway.data.answers import Scope

from .failures import invalid

_MOST_DIGITS = 15  # of a time in Unix seconds; int() raises for thousands of them


@dataclass(frozen=True, slots=True)
class FileQuery:
    path: str
    user: str
    signature: str
    expiration: str  # digits, or empty: none

    @property
    def expires_at(self) -> int | None:
        return int(self.expiration) if self.expiration else None


def file_query(scope: Scope) -> FileQuery:
    """Parse the query. Raises EnvdFailure for a parameter that is there twice, whose values could differ."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name in found:
            raise invalid(name[:100], "must be given only once")
        found[name] = value
    expiration = found.get("signature_expiration", "")
    if expiration and not (expiration.isascii() and expiration.isdigit() and len(expiration) <= _MOST_DIGITS):
        raise invalid("signature_expiration", "must be a time in Unix seconds")
    return FileQuery(found.get("path", ""), found.get("username", ""), found.get("signature", ""), expiration)
