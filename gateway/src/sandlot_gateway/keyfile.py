"""Watches the API keys file, so that keys can be added and removed while the gateway runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from sandlot_contract.followed import content_of, follow

from sandlot_gateway.keys import BadKeys, Keys

_log = logging.getLogger(__name__)


class KeyFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._failing: Callable[[bool], None] = lambda failing: None
        self._used: bytes | str = ""  # the content, or the reason why there is none

    def entries(self) -> list[str]:
        """Read the entries to start with. Raises BadKeys."""
        self._used = self._read()
        try:
            return _entries(self._used)
        except BadKeys as error:
            raise BadKeys(f"cannot use the API keys file {self._path}: {error}") from error

    async def follow(
        self,
        keys: Keys,
        *,
        fixed: list[str],
        changed: Callable[[list[str]], None],
        failing: Callable[[bool], None],
    ) -> None:
        """Keep `keys` in step with the file until cancelled; `fixed`: the entries of the settings, which come first.

        A file that cannot be used is logged once, and the earlier keys stay valid. `changed` gets all entries,
        `failing` whether the last change could not be used.
        """
        self._failing = failing

        async def use(content: bytes | str) -> None:
            self._use(content, keys=keys, fixed=fixed, changed=changed)

        await follow(self._read, use, used=self._used, failing=failing)

    def _read(self) -> bytes | str:
        return content_of(self._path)

    def _use(
        self, content: bytes | str, *, keys: Keys, fixed: list[str], changed: Callable[[list[str]], None]
    ) -> None:
        try:
            entries = [*fixed, *_entries(content)]
            if not entries:
                raise BadKeys("it has no keys, and neither have the settings: add a line KEY or KEY:TENANT")
            keys.replace(entries)
        except BadKeys as error:
            self._failing(True)
            _log.error("cannot use the API keys file %s: %s; the earlier keys stay valid", self._path, error)
        else:
            self._failing(False)
            _log.info("API keys file %s changed: %d keys are valid now", self._path, len(keys))
            try:
                changed(entries)
            except OSError as error:
                _log.error("cannot write the new API key for clients of this machine: %s", error)


def _entries(content: bytes | str) -> list[str]:
    """Parse one entry a line; `#` begins a comment. Raises BadKeys."""
    if isinstance(content, str):
        raise BadKeys(content)
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise BadKeys(
            "it is not UTF-8 text: write one KEY[:TENANT[:MAX_SANDBOXES[:ROLE]]] per line"
        ) from error
    found = [line.partition("#")[0].strip() for line in lines]
    return [entry for entry in found if entry]
