"""The certificate of the controller's calls to sidecars that speak TLS."""

from __future__ import annotations

import logging

from sandlot_contract.tls_files import BadTlsFiles, TlsFiles

from ..settings import BadSettings, Settings

_log = logging.getLogger(__name__)


def sidecar_tls(settings: Settings) -> TlsFiles | None:
    """Return what SANDLOT_SIDECAR_TLS_DIR makes, or None without. Raises BadSettings."""
    if settings.sidecar_tls_dir is None:
        return None
    try:
        return TlsFiles(str(settings.sidecar_tls_dir), failing=_changed)
    except BadTlsFiles as error:
        raise BadSettings(f"SANDLOT_SIDECAR_TLS_DIR: {error}") from error


def _changed(reason: str | None) -> None:
    if reason is None:
        _log.info("new connections to sidecars use the renewed certificate")
    else:
        _log.error("%s; the earlier files stay in use", reason)
