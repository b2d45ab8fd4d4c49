"""Watches the file of quotas, so that they can be changed while the gateway runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from sandlot_contract.followed import content_of, follow

from sandlot_gateway.quotas import BadQuotas, Quotas

_log = logging.getLogger(__name__)


class QuotaFile:
    def __init__(self, path: Path, quotas: Quotas) -> None:
        """Read the file into `quotas`. Raises BadQuotas."""
        self._path = path
        self._quotas = quotas
        self._used = self._read()
        try:
            self._apply(self._used)
        except BadQuotas as error:
            raise BadQuotas(f"cannot use the quotas file {path}: {error}") from error

    async def follow(self, *, failing: Callable[[bool], None]) -> None:
        """Keep the quotas in step with the file until cancelled.

        A file that cannot be used is logged once, and the earlier quotas stay. `failing` gets whether the last change
        could not be used.
        """

        async def use(content: bytes | str) -> None:
            try:
                self._apply(content)
            except BadQuotas as error:
                failing(True)
                _log.error("cannot use the quotas file %s: %s; the earlier quotas stay", self._path, error)
            else:
                failing(False)
                _log.info("quotas file %s changed: it has %d tenants now", self._path, len(self._quotas))

        await follow(self._read, use, used=self._used, failing=failing)

    def _apply(self, content: bytes | str) -> None:
        if isinstance(content, str):
            raise BadQuotas(content)
        self._quotas.replace(content)

    def _read(self) -> bytes | str:
        return content_of(self._path)
