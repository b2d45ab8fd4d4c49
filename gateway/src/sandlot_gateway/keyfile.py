"""Follows the API keys file, so that keys are added and removed while the gateway runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from sandlot_gateway.keys import BadKeys, Keys

_log = logging.getLogger(__name__)

_PAUSE = 1.0  # seconds between two looks


class KeyFile:
    """Reads the file again and again: that sees a write in place, a rename and the swap of a mounted Secret."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._used: bytes | str = ""  # the content, or why there is none

    def entries(self) -> list[str]:
        """Those that the gateway starts with. Raises BadKeys."""
        self._used = self._read()
        try:
            return _entries(self._used)
        except BadKeys as error:
            raise BadKeys(f"the API keys file {self._path}: {error}") from error

    async def follow(self, keys: Keys, *, fixed: list[str], changed: Callable[[list[str]], None]) -> None:
        """Until cancelled, keep `keys` as the file says; `fixed`: the entries of the settings, which come first.

        A file that cannot be used is logged once, and the keys from before stay. `changed` gets all entries.
        """
        before = self._used
        while True:
            await asyncio.sleep(_PAUSE)
            content = await asyncio.to_thread(self._read)
            # A file that is being written is not used half: two looks have to find the same.
            if content == before and content != self._used:
                self._used = content
                self._use(content, keys=keys, fixed=fixed, changed=changed)
            before = content

    def _read(self) -> bytes | str:
        try:
            return self._path.read_bytes()
        except OSError as error:
            return f"it cannot be read: {error.strerror}"

    def _use(
        self, content: bytes | str, *, keys: Keys, fixed: list[str], changed: Callable[[list[str]], None]
    ) -> None:
        try:
            entries = [*fixed, *_entries(content)]
            if not entries:
                raise BadKeys("it has no key, and the settings have none: write a line KEY or KEY:TENANT")
            keys.replace(entries)
        except BadKeys as error:
            _log.error("the API keys file %s: %s; the keys read before stay in use", self._path, error)
        else:
            _log.info("the API keys file %s has changed: %d keys are valid now", self._path, len(keys))
            try:
                changed(entries)
            except OSError as error:
                _log.error("clients of this machine are not told of the new API keys: %s", error)


def _entries(content: bytes | str) -> list[str]:
    """One a line, `#` begins a comment. Raises BadKeys."""
    if isinstance(content, str):
        raise BadKeys(content)
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise BadKeys("it is not UTF-8 text: write one KEY[:TENANT[:MAX_SANDBOXES[:ROLE]]] a line") from error
    found = [line.partition("#")[0].strip() for line in lines]
    return [entry for entry in found if entry]
