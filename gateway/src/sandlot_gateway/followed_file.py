"""Watches a file of the operator's, such as quotas, so that it can be changed while the gateway runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sandlot_contract.followed import content_of, follow

_log = logging.getLogger(__name__)


class BadContent(ValueError):
    """Raised for a file that cannot be used; the message says what is wrong in it."""


def read_json(content: bytes | str, *, error: type[BadContent], advice: str, **readers: Any) -> Any:
    """Return the document. Raises `error`, with `advice` for one that is nested too deeply; `readers`: as of json.loads."""

    def without_repetition(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise error(f"{name!r} is there twice: remove one of them"[:300])
            found[name] = value
        return found

    try:
        return json.loads(content, object_pairs_hook=without_repetition, **readers)
    except RecursionError as cause:
        raise error(f"it is nested too deeply: {advice}") from cause
    except BadContent:
        raise
    except ValueError as cause:
        raise error(f"it is not JSON: {cause}") from cause


class FollowedFile:
    """`name`: what the file has. `replace` uses its content and returns what there is now; it may raise BadContent."""

    def __init__(self, path: Path, name: str, replace: Callable[[bytes], str]) -> None:
        """Read the file. Raises BadContent."""
        self._path = path
        self._name = name
        self._replace = replace
        self._used = self._read()
        try:
            self._apply(self._used)
        except BadContent as error:
            raise BadContent(f"cannot use the {name} file {path}: {error}") from error

    async def follow(self, *, failing: Callable[[bool], None]) -> None:
        """Use each change of the file until cancelled.

        A file that cannot be used is logged once, and what was used before stays. `failing` gets whether the last change
        could not be used.
        """

        async def use(content: bytes | str) -> None:
            try:
                found = self._apply(content)
            except BadContent as error:
                failing(True)
                text = "cannot use the %s file %s: %s; the earlier %s stay"
                _log.error(text, self._name, self._path, error, self._name)
            else:
                failing(False)
                _log.info("%s file %s changed: %s", self._name, self._path, found)

        await follow(self._read, use, used=self._used, failing=failing)

    def _apply(self, content: bytes | str) -> str:
        if isinstance(content, str):
            raise BadContent(content)
        return self._replace(content)

    def _read(self) -> bytes | str:
        return content_of(self._path)
