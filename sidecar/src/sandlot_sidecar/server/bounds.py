"""How much of a request is taken: bytes of its header block, of what the parser shows nobody, of a refused body."""

from __future__ import annotations

from sandlot_contract.framing import Framing

from ..core.errors import ApiError

MAX_HEADER = 32 * 1024
MAX_FIELDS = 100  # each takes many times its length
MAX_DISCARDED = 64 * 1024 * 1024
HEADER_TIMEOUT = 30.0  # seconds for a header block that has begun
# The same for who has shown no token: enough for the longest path there is, and for a client to read its refusal.
STRANGE_HEADER = 16 * 1024
STRANGE_DISCARDED = 256 * 1024


class Bounds:
    """Of one connection, for one request after the other. All raise ApiError where there is too much."""

    __slots__ = ("_discarded", "_framing", "_header", "in_header", "trusted")

    def __init__(self) -> None:
        self.trusted = False  # a valid token was seen
        self.in_header = False
        self._header = 0
        self._framing = Framing()
        self._discarded = 0

    @property
    def _most(self) -> int:
        return MAX_HEADER if self.trusted else STRANGE_HEADER

    def begin(self) -> None:
        """A request begins."""
        self._header = 0
        self.in_header = True

    def received(self, size: int) -> None:
        """Bytes that the parser is about to see."""
        if self.in_header:
            self._header += size  # a header line without an end reaches no callback
        else:
            self._framing.arrived(size)

    def parsed(self) -> None:
        """The parser has seen them."""
        if self.in_header:
            if self._header > 2 * self._most:  # most bytes are counted here and in a callback
                raise self._too_long()
        elif self._framing.size > self._most:
            text = f"a chunk's extension or the trailer is over {self._most} bytes"
            raise ApiError(431, "header_too_large", text)

    def end_header(self) -> None:
        """The header block is complete."""
        self.in_header = False
        self._framing.begin()

    def header(self, size: int, *, fields: int = 0) -> None:
        """A part of the header block, which has so many fields by now."""
        self._header += size
        if self._header > self._most:
            raise self._too_long()
        if fields > MAX_FIELDS:
            raise ApiError(431, "header_too_large", f"the header block has over {MAX_FIELDS} fields")

    def body(self) -> None:
        """A part of the body has come."""
        self._framing.content()

    def discards(self, size: int) -> bool:
        """Whether so much more of a refused body is still taken."""
        self._discarded += size
        return self._discarded <= (MAX_DISCARDED if self.trusted else STRANGE_DISCARDED)

    def end(self) -> None:
        """The request is complete."""
        self._discarded = 0
        self._framing.end()

    def _too_long(self) -> ApiError:
        return ApiError(431, "header_too_large", f"the header block is over {self._most} bytes")


def too_slow() -> ApiError:
    """Of a header block whose end does not come."""
    return ApiError(408, "header_timeout", f"the header block took over {HEADER_TIMEOUT:g} s")
