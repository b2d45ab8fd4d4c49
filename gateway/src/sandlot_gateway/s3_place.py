"""Says which bucket, below which prefix and at which server, as the settings name it."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import msgspec

_PLACE = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/([A-Za-z0-9._/-]*))?\Z")


class Place(msgspec.Struct, frozen=True):
    """`prefix` is empty or ends with `/`; `endpoint` is a URL without a path."""

    bucket: str
    prefix: str
    endpoint: str
    region: str


def place(text: str, *, endpoint: str | None = None, region: str = "us-east-1") -> Place:
    """Return the place that `s3://BUCKET/PREFIX` names. Raises ValueError."""
    found = _PLACE.match(text)
    if found is None:
        raise ValueError(f"{text[:200]!r} must be s3://BUCKET or s3://BUCKET/PREFIX")
    prefix = (found[2] or "").strip("/")
    if "//" in prefix or {".", ".."}.intersection(prefix.split("/")):
        raise ValueError(f"{text[:200]!r} must have no '.', '..' or empty part in its prefix")
    url = endpoint or f"https://s3.{region}.amazonaws.com"
    parts = urlsplit(url)
    if (
        parts.scheme not in ("http", "https")
        or not parts.netloc
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
        or "@" in url
    ):
        # One with a user may have a secret, which is for no log.
        shown = f"{url[:200]!r}" if "@" not in url else "the endpoint"
        raise ValueError(
            f"{shown} must be a URL such as https://s3.example.com, without a path, a fragment or a user"
        )
    return Place(found[1], f"{prefix}/" if prefix else "", url.rstrip("/"), region)
