"""TLS without a connection: turns what a peer sent into data, and data into what to send."""

from __future__ import annotations

import ssl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_RECORD = 16 << 10  # the most bytes that one read returns


class TlsRecords:
    """One side of a TLS stream, as a client of `server_name` or as a server of clients with `client_name`.

    All methods may raise ssl.SSLError; `output` then has the alert for the peer.
    """

    def __init__(
        self, context: ssl.SSLContext, *, server_name: str | None = None, client_name: str | None = None
    ) -> None:
        self._client_name = client_name
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._in, self._out, server_side=server_name is None, server_hostname=server_name
        )
        self._ready: list[bytes] = []
        self.is_server = server_name is None
        self.eof = False  # the peer has ended its direction

    def feed(self, data: bytes) -> None:
        """Add what the peer has sent."""
        self._in.write(data)

    @property
    def unread(self) -> bool:
        """Whether the peer has sent more than was read."""
        return bool(self._in.pending)

    @property
    def has_ticket(self) -> bool:
        session = self._ssl.session
        return session is not None and session.has_ticket

    def shake(self) -> bool:
        """Go on with the handshake; return whether it is done."""
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self._check_name()
        return True

    def _check_name(self) -> None:
        """Check the client's name, which OpenSSL does for servers only."""
        if self._client_name is None:
            return
        names: Any = (self._ssl.getpeercert() or {}).get("subjectAltName", ())
        if ("DNS", self._client_name) not in names:
            error = ssl.SSLCertVerificationError(1, "the client's certificate is for another purpose")
            error.verify_message = f"it has no DNS name {self._client_name}"
            self._out.read()  # the ticket, which would tell the client that we accept it
            raise error

    def read(self, most: int) -> bool:
        """Decrypt at least one record, and about `most` bytes; return whether more may be left."""
        size = 0
        while size < most:
            try:
                data = self._ssl.read(_RECORD)
            except ssl.SSLWantReadError:
                return False
            except ssl.SSLZeroReturnError:
                data = b""
            if not data:
                self.eof = True
                return False
            self._ready.append(data)
            size += len(data)
        return True

    @property
    def has_data(self) -> bool:
        """Whether `take` would return any."""
        return bool(self._ready)

    def take(self) -> bytes:
        """Return the data that was read."""
        data = self._ready[0] if len(self._ready) == 1 else b"".join(self._ready)
        self._ready.clear()
        return data

    def write(self, data: Any) -> None:
        view = memoryview(data)
        while view:
            view = view[self._ssl.write(view) :]

    def shut(self) -> None:
        """End this direction. What has arrived must be read before: OpenSSL takes application data for a violation."""
        self._ssl.unwrap()

    def output(self) -> bytes:
        """Return what is to be sent."""
        return self._out.read() if self._out.pending else b""

    def clear(self) -> None:
        """Forget the data that was read."""
        self._ready.clear()
