"""Finds the server: arguments, then SANDLOT_URL and SANDLOT_API_KEY, then a private stack on this machine."""

from __future__ import annotations

import os

from sandlot.endpoint import Endpoint, endpoint
from sandlot.errors import ConfigError


def named_endpoint(*, url: str | None, api_key: str | None) -> Endpoint | None:
    """Return the endpoint that the arguments or the environment name, else None. Raises ConfigError."""
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
    """Return the server to use; start a private local stack if none is named. Blocks. Raises ConfigError."""
    found = named_endpoint(url=url, api_key=api_key)
    if found is not None:
        return found
    from sandlot._local import find_or_start

    return find_or_start()
