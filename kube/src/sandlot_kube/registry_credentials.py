"""Tenants' credentials of registries: a directory with a file TENANT.json for each, like Docker's config.json."""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from sandlot_contract.images import HUB, registry_of

_log = logging.getLogger(__name__)

_HUBS = frozenset({HUB, "index.docker.io", "registry-1.docker.io"})


@dataclass(frozen=True, slots=True)
class Auth:
    """Credentials for one registry. Their text form does not show them."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    def document(self) -> dict[str, str]:
        """Return the `auth` of a node agent's API."""
        if self.identity_token:
            return {"identity_token": self.identity_token}
        return {"username": self.username, "password": self.password}


class RegistryCredentials:
    """Reads a tenant's file at each question: Kubernetes replaces the files of a mounted Secret at any time."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def of(self, tenant: str, image: str) -> Auth | None:
        """Return the tenant's credentials for the image's registry, or None if it has none."""
        if self._directory is None or "/" in tenant or tenant.startswith("."):
            return None
        try:
            config = msgspec.json.decode((self._directory / f"{tenant}.json").read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            # Without the error's own text, which may quote the file.
            _log.error(
                "the registry credentials of tenant %r cannot be read (%s); its private images cannot be pulled",
                tenant,
                type(error).__name__,
            )
            return None
        auths = config.get("auths") if isinstance(config, dict) else None
        registry = registry_of(image)
        for name, entry in cast("dict[str, Any]", auths if isinstance(auths, dict) else {}).items():
            if isinstance(entry, dict) and _is_of(name, registry):
                return _auth(cast("dict[str, Any]", entry))
        return None


def _is_of(name: str, registry: str) -> bool:
    """Return whether a key of `auths`, a host or a URL, is of this registry."""
    try:
        host = (urlsplit(name if "//" in name else f"//{name}").netloc or name).lower()
    except ValueError:
        return False
    return host == registry or (host in _HUBS and registry in _HUBS)


def _auth(entry: dict[str, Any]) -> Auth | None:
    token = entry.get("identitytoken")
    if isinstance(token, str) and token:
        return Auth(identity_token=token)
    username, password = entry.get("username"), entry.get("password")
    if not username and isinstance(entry.get("auth"), str):
        try:
            username, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
        except ValueError:
            return None
    if not isinstance(username, str) or not username:
        return None
    return Auth(username=username, password=password if isinstance(password, str) else "")
