"""The error that ends a release, with the reason for the person who makes it."""

from __future__ import annotations


class ReleaseError(Exception):
    """Raised if a release cannot be made; the message says why, and what to do."""
