"""Limits on a request's size: its header block, chunk framing and the body of a rejected request."""

from __future__ import annotations

from sandlot_contract.framing import Framing

from ..core.errors import ApiError

MAX_HEADER = 32 * 1024
MAX_FIELDS = 100  # each costs many times its length in memory
MAX_DISCARDED = 64 * 1024 * 1024
HEADER_TIMEOUT = 30.0  # seconds, from the first byte of a header block
# For a connection without a token: enough for the longest path, and for a client to read the error response.
STRANGE_HEADER = 16 * 1024
STRANGE_DISCARDED = 256 * 1024


class Bounds:
    """Size limits of one connection, applied to one request after another. Methods raise ApiError beyond a limit."""

    __slots__ = ("_discarded", "_framing", "_header", "in_header", "trusted")

    def __init__(self) -> None:
        self.trusted = False  # the connection has shown a valid token
        self.in_header = False
        self._header = 0
        self._framing = Framing()
        self._discarded = 0

    @property
    def _most(self) -> int:
        return MAX_HEADER if self.trusted else STRANGE_HEADER

    def begin(self) -> None:
        """Begin a request."""
        self._header = 0
        self.in_header = True

    def received(self, size: int) -> None:
        """Count bytes before the parser sees them."""
        if self.in_header:
            self._header += size  # an unterminated header line reaches no callback
        else:
            self._framing.arrived(size)

    def parsed(self) -> None:
        """Check the limits after the parser has seen the bytes."""
        if self.in_header:
            if self._header > 2 * self._most:  # most bytes are counted both here and in a callback
                raise self._too_long()
        elif self._framing.size > self._most:
            text = f"a chunk extension or the trailer is over {self._most} bytes: send less"
            raise ApiError(431, "header_too_large", text)

    def end_header(self) -> None:
        """End the header block."""
        self.in_header = False
        self._framing.begin()

    def header(self, size: int, *, fields: int = 0) -> None:
        """Count a part of the header block; `fields` is the number of fields so far."""
        self._header += size
        if self._header > self._most:
            raise self._too_long()
        if fields > MAX_FIELDS:
            raise ApiError(
                431, "header_too_large", f"the header block has over {MAX_FIELDS} fields: send fewer"
            )

    def body(self) -> None:
        """Note that the parser has seen part of the body."""
        self._framing.content()

    def discards(self, size: int) -> bool:
        """Return whether this many more bytes of a rejected body may be read and dropped."""
        self._discarded += size
        return self._discarded <= (MAX_DISCARDED if self.trusted else STRANGE_DISCARDED)

    def end(self) -> None:
        """End the request."""
        self._discarded = 0
        self._framing.end()

    def _too_long(self) -> ApiError:
        return ApiError(
            431,
            "header_too_large",
            f"the header block is over {self._most} bytes: shorten the path or headers",
        )


def too_slow() -> ApiError:
    """Return a 408 for a header block that is never completed."""
    return ApiError(
        408, "header_timeout", f"the header block took over {HEADER_TIMEOUT:g} s: send it within that time"
    )
