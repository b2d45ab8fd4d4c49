"""What a template sets for its sandboxes besides files, kept in the metadata of its checkpoint."""

from __future__ import annotations

import msgspec

from sandlot_gateway.core.bad_json import NOT_JSON

KEY = "e2b"  # of the metadata of a template
OF_SNAPSHOT = "e2b.snapshot"  # of that of a snapshot


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

    def metadata(self, key: str = KEY) -> dict[str, str]:
        return {key: msgspec.json.encode(self).decode()}


def of_metadata(metadata: dict[str, str], key: str = KEY) -> Saved | None:
    """Return what a checkpoint's metadata says; None for one without it, or not as the gateway writes it."""
    try:
        return msgspec.json.decode(metadata[key], type=Saved)
    except (KeyError, *NOT_JSON):
        return None
