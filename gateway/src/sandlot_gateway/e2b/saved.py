"""What a template sets for its sandboxes besides files, kept in the metadata of its checkpoint."""

from __future__ import annotations

import msgspec

KEY = "e2b"  # of the metadata


class Saved(msgspec.Struct, omit_defaults=True):
    """`cpu` in cores; `ready`: a command that succeeds once the start command serves."""

    template: str = ""
    build: str = ""
    key: str = ""  # the digest of all that the build depends on
    env: dict[str, str] = {}
    workdir: str | None = None
    user: str | None = None
    start: str | None = None
    ready: str | None = None
    cpu: float | None = None
    memory_gb: float | None = None

    def metadata(self) -> dict[str, str]:
        return {KEY: msgspec.json.encode(self).decode()}


def of_metadata(metadata: dict[str, str]) -> Saved | None:
    """Return what a checkpoint's metadata says; None for one that is no template's, or not as a build writes it."""
    try:
        return msgspec.json.decode(metadata[KEY], type=Saved)
    except (KeyError, msgspec.DecodeError, RecursionError):
        return None
