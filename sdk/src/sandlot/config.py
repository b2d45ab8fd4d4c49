"""Where the server is: arguments, then SANDLOT_URL and SANDLOT_API_KEY, then a private stack on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sandlot._protocol.http1 import Origin, split_url
from sandlot.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server and the key that opens it."""

    url: str
    api_key: str
    origin: Origin
    prefix: str

    def __repr__(self) -> str:
        return f"Endpoint(url={self.url!r})"


def endpoint(*, url: str, api_key: str) -> Endpoint:
    """A checked endpoint. A trailing slash or /api/v1 of the URL is dropped. Raises ConfigError."""
    plain = url.strip().rstrip("/").removesuffix("/api/v1")
    try:
        origin, prefix = split_url(plain)
    except ValueError as error:
        raise ConfigError(f"SANDLOT_URL: {error}") from error
    if any(ord(letter) < 33 or ord(letter) > 126 for letter in api_key):
        raise ConfigError("SANDLOT_API_KEY: contains a blank or a character that is not ASCII")
    return Endpoint(url=plain, api_key=api_key, origin=origin, prefix=prefix)


def named_endpoint(*, url: str | None, api_key: str | None) -> Endpoint | None:
    """The endpoint that arguments and environment name, or None when they name none. Raises ConfigError."""
    url = url or os.environ.get("SANDLOT_URL") or None
    api_key = api_key or os.environ.get("SANDLOT_API_KEY") or None
    if url is None:
        if api_key is not None:
            raise ConfigError("an API key is given but no server: set SANDLOT_URL as well")
        return None
    if api_key is None:
        from sandlot._local import key_of

        api_key = key_of(url)
        if api_key is None:
            raise ConfigError(f"no API key for {url}: set SANDLOT_API_KEY")
    return endpoint(url=url, api_key=api_key)


def find_endpoint(*, url: str | None = None, api_key: str | None = None) -> Endpoint:
    """The server to use; starts a private local stack when none is named. Blocks. Raises ConfigError."""
    found = named_endpoint(url=url, api_key=api_key)
    if found is not None:
        return found
    from sandlot._local import find_or_start

    return find_or_start()
