"""Reads the operator's file of webhook targets, and their secrets from the files that it names."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from sandlot_gateway.keys import is_tenant

from ..event import EventFilter, EventType, read_types

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}")
_PREFIX = "whsec_"
_SHORTEST, _LONGEST = 24, 64  # bytes of a secret, as Standard Webhooks has it
_MOST_BYTES = 1 << 20  # of the file
_MOST_TARGETS = 100


class BadTargets(ValueError):
    """The file of targets, or a secret, cannot be used; the message says why."""


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    tenant: str
    url: str
    secret_file: str
    types: list[EventType] = []
    labels: list[str] = []
    run: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    tenant: str
    url: str
    secret_file: Path
    wanted: EventFilter

    def secrets(self) -> list[bytes]:
        """Read the secrets, one a line: several while one replaces another. Raises BadTargets."""
        try:
            lines = self.secret_file.read_text("ascii").split()
        except (OSError, ValueError) as error:
            kind = type(error).__name__  # not the text of a ValueError, which has a part of the secret
            raise BadTargets(f"{self.name}: cannot read {self.secret_file}: {kind}") from None
        found = [_secret(line) for line in lines]
        if not found or None in found:
            raise BadTargets(
                f"{self.name}: {self.secret_file} must have lines of `whsec_` and the base64 of {_SHORTEST} to "
                f"{_LONGEST} bytes"
            )
        return [secret for secret in found if secret is not None]


def read_targets(path: Path) -> list[Target]:
    """Read the targets, with relative names of secret files below the file's directory. Raises BadTargets."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES)
        entries = msgspec.json.decode(content, type=list[_Entry])
    except (OSError, msgspec.MsgspecError) as error:
        raise BadTargets(f"cannot use the file of webhooks {path}: {error}") from error
    targets: list[Target] = []
    for entry in entries:
        try:
            targets.append(_target(entry, path.parent))
        except ValueError as error:
            raise BadTargets(f"cannot use the file of webhooks {path}: {entry.name[:63]}: {error}") from error
    if len({target.name for target in targets}) < len(targets):
        raise BadTargets(f"cannot use the file of webhooks {path}: two have the same name")
    if len(targets) > _MOST_TARGETS:
        raise BadTargets(f"cannot use the file of webhooks {path}: it has more than {_MOST_TARGETS}")
    return targets


def _target(entry: _Entry, directory: Path) -> Target:
    if not _NAME.fullmatch(entry.name):
        raise ValueError("name: must be 1 to 63 of the characters A-Z a-z 0-9 . _ - and not begin with a dot")
    if not is_tenant(entry.tenant):
        raise ValueError("tenant: must be the name of a tenant")
    url = urlsplit(entry.url)
    if url.scheme not in ("https", "http") or not url.hostname or "@" in url.netloc or url.fragment:
        raise ValueError("url: must be https://HOST[:PORT]/PATH, or http://, without user and fragment")
    if not entry.url.isascii() or not entry.url.isprintable() or " " in entry.url:
        raise ValueError("url: must be printable ASCII without spaces")
    target = Target(
        name=entry.name,
        tenant=entry.tenant,
        url=entry.url,
        secret_file=directory / entry.secret_file,
        wanted=EventFilter(labels=frozenset(entry.labels), types=read_types(entry.types), run=entry.run),
    )
    target.secrets()
    return target


def _secret(text: str) -> bytes | None:
    try:
        secret = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        return None
    return secret if text.startswith(_PREFIX) and _SHORTEST <= len(secret) <= _LONGEST else None
