"""TLS between an asyncio transport and a protocol: mutual, with a bounded handshake and half-close.

asyncio's own has no half-close, which tunnels need, and shows a connection to its protocol only after the handshake,
so that nothing would limit how many strangers are in one. It also takes 256 KiB for each connection.
"""

from __future__ import annotations

import asyncio
import ssl

from .tls_faults import reason_of
from .tls_records import TlsRecords

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

HANDSHAKE_TIMEOUT = 10.0
_PIECE = 256 << 10  # bytes that the protocol gets at once
_HANDSHAKE_RECORD = 0x16  # the first byte of every TLS connection; no HTTP request begins with it


class TlsStream(asyncio.Protocol, asyncio.Transport):
    """The protocol of a raw transport, and the transport of the protocol `app`.

    `app` gets the connection at once: what it writes waits for the end of the handshake.
    """

    def __init__(
        self,
        app: Any,
        context: ssl.SSLContext,
        *,
        server_name: str | None = None,
        client_name: str | None = None,
        or_plain: bool = False,
        failed: Callable[[str, Any], None] | None = None,
    ) -> None:
        """As a client of `server_name`, or as a server of clients whose certificate has `client_name`.

        `or_plain`: as a server, pass on a connection that does not begin with TLS as it is. `failed` gets the reason
        of a failed handshake, and the peer's address.
        """
        asyncio.Transport.__init__(self)
        self._app = app
        self._failed = failed
        self._tls = TlsRecords(context, server_name=server_name, client_name=client_name)
        self._raw: Any = None
        self._unsure = or_plain  # the first byte decides
        self._plain = False
        self._shaken = False
        self._unsent: list[bytes] = []
        self._paused = False
        self._pumping = False
        self._closing = False
        self._eof_sent = False
        self._eof_told = False
        self._error: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None
        # As a client: done once the server has accepted our certificate.
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- as a protocol ---------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._raw = transport
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_TIMEOUT, self._too_slow)
        self._app.connection_made(self)
        if not self._tls.is_server:
            self._shake()

    def data_received(self, data: bytes) -> None:
        if self._unsure:
            self._unsure = False
            if data[0] != _HANDSHAKE_RECORD:
                self._plain = True
                self._stop_timer()
                if self._paused:
                    self._raw.pause_reading()
        if self._plain:
            self._app.data_received(data)
            return
        if self._closing:
            return
        self._tls.feed(data)
        if self._shaken or self._shake():
            self._pump()

    def eof_received(self) -> bool:
        if self._plain:
            return bool(self._app.eof_received())
        if not self._tls.eof and not self._closing:
            self._fail(ConnectionResetError("the peer closed the connection within its TLS stream"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._closing = True
        error = self._error or exc
        if not self.accepted.done():
            if self._shaken and (error is None or isinstance(error, ConnectionError)):
                # A server has no alert for a certificate without the name that it wants.
                error = ssl.SSLError(
                    1, "the peer closed the connection after our certificate: its log says why"
                )
            self.accepted.set_exception(error or ConnectionResetError("the peer closed the connection"))
            self.accepted.exception()  # retrieved: nobody may wait for it
        self._app.connection_lost(error)
        self._unsent.clear()
        self._tls.clear()

    def pause_writing(self) -> None:
        self._app.pause_writing()

    def resume_writing(self) -> None:
        self._app.resume_writing()

    # -- as a transport --------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the raw transport's; `encrypted` is True."""
        return not self._plain if name == "encrypted" else self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._closing or self._raw.is_closing()

    def close(self) -> None:
        if self._plain:
            self._raw.close()
        elif not self._closing:
            self._end_output()
            self._closing = True
            self._raw.close()

    def abort(self) -> None:
        self._closing = True
        self._raw.abort()

    def pause_reading(self) -> None:
        self._paused = True
        if not self._raw.is_closing():  # uvloop raises RuntimeError
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if not self._raw.is_closing():
            self._raw.resume_reading()
        if self._shaken and not self._plain:
            asyncio.get_running_loop().call_soon(self._pump)

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size() + sum(map(len, self._unsent))

    def write(self, data: Any) -> None:
        if self._plain:
            self._raw.write(data)
        elif self._shaken:
            self._encrypt(data)
            self._flush()
        elif not self._closing and data:
            self._unsent.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """End this direction by a close_notify; the other one goes on."""
        if self._plain:
            self._raw.write_eof()
        elif not self._closing:
            self._end_output()

    # -- TLS -------------------------------------------------------------------------------------------------

    def _shake(self) -> bool:
        """Go on with the handshake; return whether it is done."""
        try:
            self._shaken = self._tls.shake()
        except ssl.SSLError as error:
            self._fail(error, reason_of(error))
            return False
        if not self._shaken:
            self._flush()
            return False
        if self._tls.is_server:
            self._stop_timer()
        for data in self._unsent:
            self._encrypt(data)
        self._unsent.clear()
        if self._eof_sent:
            self._shut()
        self._flush()
        return True

    def _pump(self) -> None:
        """Pass on what has arrived, until the protocol pauses."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while not self._paused and not self._closing:
                more = not self._tls.eof and self._read()
                if self._tls.has_data:
                    self._app.data_received(self._tls.take())
                elif self._tls.eof:
                    self._tell_end()
                    break
                elif not more:
                    break
        finally:
            self._pumping = False
        self._flush()  # answers of TLS itself, such as to a change of keys

    def _read(self) -> bool:
        """Decrypt a piece; return whether more may be left."""
        try:
            more = self._tls.read(_PIECE)
        except ssl.SSLError as error:
            self._fail(error, reason_of(error))
            return False
        if not more and not self._tls.eof:
            self._note_accepted()
        return more

    def _note_accepted(self) -> None:
        if not self.accepted.done() and not self._tls.is_server and self._tls.has_ticket:
            self._stop_timer()
            self.accepted.set_result(None)

    def _tell_end(self) -> None:
        if not self._eof_told:
            self._eof_told = True
            if not self._app.eof_received():
                self.close()

    def _encrypt(self, data: Any) -> None:
        if self._closing or self._eof_sent:
            return
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            self._fail(error, reason_of(error))

    def _end_output(self) -> None:
        if not self._eof_sent:
            self._eof_sent = True
            if self._shaken:
                self._shut()
                self._flush()

    def _shut(self) -> None:
        while self._shaken and not self._tls.eof and not self._closing and self._tls.unread:
            if not self._read():
                break
        if self._tls.has_data or self._tls.eof:
            asyncio.get_running_loop().call_soon(self._pump)
        try:
            self._tls.shut()
        except ssl.SSLError:
            return  # the peer's close_notify is still to come

    def _flush(self) -> None:
        if not self._raw.is_closing() and (data := self._tls.output()):
            self._raw.write(data)

    def _too_slow(self) -> None:
        self._timer = None
        text = f"the handshake took longer than {HANDSHAKE_TIMEOUT:g} s"
        self._fail(TimeoutError(text), text)
        self._raw.abort()

    def _fail(self, error: Exception, reason: str = "") -> None:
        """Close, once the alert that tells the peer why is sent."""
        if self._closing:
            return
        self._closing = True
        self._error = error
        if self._failed is not None and not self._shaken and reason:
            self._failed(reason, self._raw.get_extra_info("peername"))
        self._flush()
        self._raw.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
