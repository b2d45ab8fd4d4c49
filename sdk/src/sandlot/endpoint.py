"""A validated server URL with its API key."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot._protocol.http1 import Origin, split_url
from sandlot.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URL of a server and the API key for it."""

    url: str
    api_key: str
    origin: Origin
    prefix: str

    def __repr__(self) -> str:
        return f"Endpoint(url={self.url!r})"


def endpoint(*, url: str, api_key: str) -> Endpoint:
    """Validate URL and key, and drop a trailing slash or /api/v1 from the URL. Raises ConfigError."""
    plain = url.strip().rstrip("/").removesuffix("/api/v1")
    try:
        origin, prefix = split_url(plain)
    except ValueError as error:
        raise ConfigError(f"SANDLOT_URL: {error}") from error
    if any(ord(letter) < 33 or ord(letter) > 126 for letter in api_key):
        raise ConfigError("SANDLOT_API_KEY: contains a blank or a character that is not ASCII")
    return Endpoint(url=plain, api_key=api_key, origin=origin, prefix=prefix)
