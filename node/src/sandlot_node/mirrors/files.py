"""The agent's own hosts.toml files, by which containerd asks a cache before a registry; it leaves all others alone."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

_MARK = "# Sandlot's node agent writes and removes this file; owner: "
_FILE, _PART = "hosts.toml", ".hosts.toml.part"
# Seconds that containerd (2.1 and later) waits for a connection to the cache. By default 30, for each blob of an image.
_DIAL = "2s"


def hosts_toml(*, owner: str, upstream: str, cache: str | None) -> str:
    """Return the file's text: the cache first, then the registry itself. Both are URLs. None: the registry alone.

    The cache gives what has a digest, which containerd checks. What a tag means, and whether credentials are right, the
    registry itself says: a cache answers 404 where the registry refuses.
    """
    registry = f"{_MARK}{owner}\nserver = {json.dumps(upstream)}\n"
    if cache is None:
        return registry
    return f'{registry}\n[host.{json.dumps(cache)}]\n  capabilities = ["pull"]\n  dial_timeout = "{_DIAL}"\n'


class MirrorFiles:
    """The files below containerd's directory of registries (`config_path`) whose first line names this owner."""

    def __init__(self, directory: Path, *, owner: str) -> None:
        """`owner`: no other release on these nodes has the same."""
        self._directory = directory
        self._owner = owner

    def write(self, host: str, *, upstream: str, cache: str | None) -> None:
        """Write the file of a registry whose configuration is ours. `cache`: None without one. Raises OSError."""
        place = self._directory / host
        text = hosts_toml(owner=self._owner, upstream=upstream, cache=cache)
        place.mkdir(mode=0o755, parents=True, exist_ok=True)
        if _read(place / _FILE) == text:
            return
        part = place / _PART
        part.write_text(text)
        part.chmod(0o644)
        # containerd may read at any time, and pulls from the registry directly if it reads half a file.
        part.replace(place / _FILE)

    def remove(self, host: str) -> None:
        """Remove the file of a registry if it is ours. Raises OSError."""
        place = self._directory / host
        if self._is_owned(place / _FILE):
            (place / _PART).unlink(missing_ok=True)
            (place / _FILE).unlink(missing_ok=True)
            if not any(place.iterdir()):
                place.rmdir()

    def owned(self) -> set[str]:
        """Return the registries whose files are ours."""
        if not self._directory.is_dir():
            return set()
        return {place.name for place in self._directory.iterdir() if self._is_owned(place / _FILE)}

    def configured_by(self, host: str) -> Path | None:
        """Return what the node has of its own for this registry; None: its configuration is ours to write.

        containerd uses one directory for a registry, or that of all others. A file of ours would hide it, and with it
        certificates and mirrors of the node's operator.
        """
        for name in (re.sub(r":(\d+)$", r"_\1_", host), host, "_default"):
            place = self._directory / name
            try:
                there = set(os.listdir(place)) - {_PART}
            except FileNotFoundError:
                continue
            if name == host and (not there or (there == {_FILE} and self._is_owned(place / _FILE))):
                continue
            return place
        return None

    def unread(self, path: str) -> str:
        """Return why containerd does not read the files, if it looks for them at this `config_path`; else nothing.

        With more than one path, its transfer service takes all of them together as the name of one directory, and else
        files of another one may take the place of ours.
        """
        if path and Path(path) == self._directory:
            return ""
        return (
            f"containerd's config_path of registries is {path!r}. Set it to {str(self._directory)!r}, or "
            "nodeAgent.containerd.certs to its one directory"
        )

    def is_ours(self, host: str) -> bool:
        """Return whether a registry's file is of this release or another one."""
        return _read(self._directory / host / _FILE).startswith(_MARK)

    def _is_owned(self, file: Path) -> bool:
        return _read(file).partition("\n")[0] == _MARK + self._owner


def _read(file: Path) -> str:
    """Return the text; empty if there is none."""
    try:
        return file.read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""
