"""HTTP calls to servers in pods, by the pod's address."""

from __future__ import annotations

import ssl
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
from sandlot_contract.sidecar import ENCRYPTED, SIDECAR_NAME
from sandlot_contract.tls_files import TlsFiles

# What a call and the reading of its answer raise.
CALL_ERRORS = (aiohttp.ClientError, OSError, TimeoutError, ValueError)


class NoCertificate(ValueError):
    """Raised for a sidecar that speaks TLS where the controller has no certificate."""


def is_refusal(error: Exception) -> bool:
    """Return whether an encrypted call may have failed because one side refuses the other's certificate.

    A server that refuses ours closes the connection after the handshake, and its alert may be lost.
    """
    lost = isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError))
    after_handshake = lost and not isinstance(error, aiohttp.ClientConnectorError)
    return after_handshake or isinstance(error, (NoCertificate, ssl.SSLError, aiohttp.ClientSSLError))


class PodHttp:
    """Calls the servers on one port of all pods; `close` it at the end. Callers limit their calls at one time."""

    def __init__(self, *, port: int, tls: TlsFiles | None = None) -> None:
        """`tls`: for addresses that begin with `tls:`."""
        self._port = port
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    def url(self, address: str, path: str) -> str:
        scheme = "https" if address.startswith(ENCRYPTED) else "http"
        address = address.removeprefix(ENCRYPTED)
        host = f"[{address}]" if ":" in address else address
        return f"{scheme}://{host}:{self._port}{path}"

    def call(
        self, method: str, url: str, *, token: str, body: dict[str, Any] | None, seconds: float
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Return the answer as a context; entering it, and reading the answer, raises CALL_ERRORS."""
        if self._session is None:
            # With a limit here, calls of silent servers would use up the time of the others.
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        encrypted = {}
        if url.startswith("https:"):
            if self._tls is None:
                raise NoCertificate(
                    "it speaks TLS, and the controller has no certificate: set SANDLOT_SIDECAR_TLS_DIR"
                )
            encrypted = {"ssl": self._tls.client(), "server_hostname": SIDECAR_NAME}
        return self._session.request(
            method,
            url,
            **encrypted,
            json=body,
            headers={"Authorization": f"Bearer {token}"},
            timeout=aiohttp.ClientTimeout(total=seconds),
            allow_redirects=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
