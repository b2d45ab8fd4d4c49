"""TLS between this gateway and its sidecars, in both directions, where --sidecar-tls-dir is set."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sandlot_contract.sidecar import GATEWAY_NAME, SIDECAR_NAME
from sandlot_contract.tls_files import TlsFiles
from sandlot_contract.tls_stream import TlsStream

from sandlot_gateway.metrics import Metrics
from sandlot_gateway.settings import Settings

_log = logging.getLogger(__name__)
_LOG_PAUSE = 10.0  # seconds between two lines: anything in a sandbox's network may open connections


def sidecar_tls(settings: Settings, *, metrics: Metrics) -> SidecarTls | None:
    """Return what --sidecar-tls-dir makes, or None without. Raises BadTlsFiles."""
    if settings.sidecar_tls_dir is None:
        return None
    return SidecarTls(settings.sidecar_tls_dir, failing=partial(metrics.reload_failing, "sidecar_tls"))


class SidecarTls:
    """Makes the streams. It tells `failing` whether it cannot use the last change of the files."""

    def __init__(self, directory: Path, *, failing: Callable[[bool], None] = lambda failing: None) -> None:
        """Read the files. Raises BadTlsFiles."""
        self._failing = failing
        self._files = TlsFiles(str(directory), failing=self._changed)
        # By text: strangers at the webhook port must not hide why sidecars cannot be called.
        self._logged_at: dict[str, float] = {}

    def dialled(self, connection: asyncio.Protocol) -> TlsStream:
        """Return the stream of a connection to a sidecar."""
        return TlsStream(connection, self._files.client(), server_name=SIDECAR_NAME)

    def accepted(self, connection: asyncio.Protocol) -> TlsStream:
        """Return the stream of a webhook, which a sidecar of before TLS was switched on sends without."""
        return TlsStream(
            connection,
            self._files.server(),
            client_name=SIDECAR_NAME,
            or_plain=True,
            failed=self._refused,
        )

    def _changed(self, reason: str | None) -> None:
        self._failing(reason is not None)
        if reason is None:
            _log.info("new connections to sidecars use the renewed certificate of %s", GATEWAY_NAME)
        else:
            _log.error("%s; the earlier files stay in use", reason)

    def dial_failed(self, address: str, reason: str) -> None:
        self._warn("cannot call the sidecar at %s by TLS: %s", address, reason)

    def _refused(self, reason: str, peer: Any) -> None:
        self._warn("refused the TLS connection of a sidecar at %s: %s", peer and peer[0], reason)

    def _warn(self, text: str, *arguments: object) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._logged_at.get(text, float("-inf")) >= _LOG_PAUSE:
            self._logged_at[text] = now
            _log.warning(text, *arguments)
