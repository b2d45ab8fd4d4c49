"""Reads the CA, certificate and key of encrypted calls between gateway and sidecar, again whenever they change."""

from __future__ import annotations

import os
import ssl
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CA, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"
RETRY_AFTER = 5.0  # seconds; for files that the machine cannot read (EMFILE, EIO), whatever they contain
_ATTEMPTS = 3  # to read the files while none of them changes

_Stamp = tuple[tuple[int, int, int], ...]


class BadTlsFiles(OSError):
    """The files cannot be read or do not fit together; the message names the directory."""


class TlsFiles:
    """The contexts of one directory's files: `ca.crt` (one or more CAs), `tls.crt` and `tls.key`.

    `stat` is cheap, so each new connection looks whether the files have changed; open ones keep what they have. Files
    that cannot be used leave the earlier ones in use, and `failing` gets the reason, or None once they work again.
    """

    def __init__(
        self,
        directory: str,
        *,
        failing: Callable[[str | None], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the files. Raises BadTlsFiles."""
        self._directory = directory
        self._failing = failing
        self._clock = clock
        self._again_at = float("-inf")
        self._seen = self._stamp()
        self._client, self._server = self._load()

    def client(self) -> ssl.SSLContext:
        """Return the context of a new connection to a peer whose name is checked."""
        self._refresh()
        return self._client

    def server(self) -> ssl.SSLContext:
        """Return the context of a new connection that demands the peer's certificate."""
        self._refresh()
        return self._server

    def _refresh(self) -> None:
        stamp = self._stamp()
        if stamp == self._seen or self._clock() < self._again_at:
            return
        try:
            self._client, self._server = self._load()
        except BadTlsFiles as error:
            self._failing(str(error))
            if not isinstance(error.__cause__, (ssl.SSLError, ValueError)):
                # Nothing is wrong with what they contain, so they may never change again.
                self._again_at = self._clock() + RETRY_AFTER
                return
        else:
            self._failing(None)
        self._seen = stamp

    def _load(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """Return (client, server) of one state of the files, which may be replaced meanwhile. Raises BadTlsFiles."""
        for _ in range(_ATTEMPTS):
            before = self._stamp()
            try:
                made = self._context(ssl.PROTOCOL_TLS_CLIENT), self._context(ssl.PROTOCOL_TLS_SERVER)
            except (OSError, ValueError) as error:  # SSLError is an OSError
                if before == self._stamp():
                    raise BadTlsFiles(self._problem(error)) from error
                continue
            if before == self._stamp():
                return made
        raise BadTlsFiles(f"the files in {self._directory} change all the time: write them once, by a rename")

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(self._path(CA))
        # Without a password, a key that needs one would be asked for on the terminal.
        context.load_cert_chain(self._path(CERTIFICATE), self._path(KEY), password=_no_password)
        if protocol == ssl.PROTOCOL_TLS_SERVER:
            # The one ticket tells the client that its certificate was accepted; see tls_stream.py.
            context.num_tickets = 1
        return context

    def _problem(self, error: Exception) -> str:
        what = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        return (
            f"cannot use the TLS files in {self._directory} ({what}): "
            f"it needs {CA}, {CERTIFICATE} and the {KEY} of that certificate, in PEM and without a password"
        )

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _stamp(self) -> _Stamp:
        return tuple(_stamp(self._path(name)) for name in (CA, CERTIFICATE, KEY))


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return found.st_ino, found.st_mtime_ns, found.st_size


def _no_password() -> str:
    raise ValueError("the key needs a password")
