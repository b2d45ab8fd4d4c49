"""Names, tags and ids of templates, without I/O."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from ..failures import Problem

DEFAULT_TAG = "default"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}\Z")
_TEMPLATE_ID = re.compile(r"[0-9a-f]{24}\Z")
_BUILD_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_FILES_HASH = re.compile(r"[0-9a-f]{64}\Z")
_TENANT = 12  # digits of a template's id that its tenant determines
_MOST_TAGS = 32


@dataclass(frozen=True, slots=True)
class Named:
    """A template's name with a tag; None: no tag was given."""

    name: str
    tag: str | None


def named(text: str) -> Named | None:
    """Return what `NAME` or `NAME:TAG` stands for; None if it can be no template's name."""
    name, colon, tag = text.partition(":")
    # `cp-…` is a snapshot.
    if not _NAME.match(name) or name.startswith("cp-") or (colon and not _TAG.match(tag)):
        return None
    return Named(name, tag if colon else None)


def read_name(text: str, *, field: str) -> Named:
    """Return a name that a request gives. Raises Problem."""
    found = named(text)
    if found is None:
        raise Problem(
            400,
            f"{field}: {text[:100]!r} must be NAME or NAME:TAG, each at most 63 of A-Z a-z 0-9 . _ -, a letter or"
            " digit first, and not cp-…, which is a snapshot",
        )
    return found


def read_tags(tags: list[str], *, field: str = "tags") -> list[str]:
    """Return the tags without repetitions. Raises Problem."""
    found = list(dict.fromkeys(tags))
    for tag in found:
        if not _TAG.match(tag):
            raise Problem(
                400,
                f"{field}: {tag[:100]!r} must be at most 63 of A-Z a-z 0-9 . _ -, a letter or digit first",
            )
    if len(found) > _MOST_TAGS:
        raise Problem(400, f"{field}: has {len(found)} tags, the limit is {_MOST_TAGS}: leave some out")
    return found


def tenant_digest(tenant: str) -> str:
    """Return the directory of a tenant, with which the ids of its templates begin."""
    return hashlib.sha256(tenant.encode()).hexdigest()[:_TENANT]


def template_id(tenant: str, name: str) -> str:
    """Return the id of a tenant's template, the same at every gateway."""
    rest = hashlib.sha256(f"{tenant}\0{name}".encode()).hexdigest()[:_TENANT]
    return tenant_digest(tenant) + rest


def tenant_part(template: str) -> str:
    return template[:_TENANT]


def is_template_id(text: str) -> bool:
    return _TEMPLATE_ID.match(text) is not None


def is_build_id(text: str) -> bool:
    return _BUILD_ID.match(text) is not None


def is_files_hash(text: str) -> bool:
    return _FILES_HASH.match(text) is not None
