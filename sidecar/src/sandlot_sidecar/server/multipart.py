"""A streaming multipart/form-data parser without I/O: bytes in, parts and their bytes out, in constant memory."""

from __future__ import annotations

from ..core.errors import bad_input

MAX_PART_HEADER = 16 * 1024
MAX_PARTS = 1000  # a form of millions of empty parts would block the event loop
DATA, BEGIN, FINISH = "data", "begin", "finish"
Event = tuple[str, bytes]  # ("begin", part's name), ("data", bytes), ("finish", b"")


class Multipart:
    """Parses the pieces of a body; a boundary may be split between any two of them."""

    def __init__(self, boundary: bytes) -> None:
        self._mark = b"\r\n--" + boundary
        self._data = b"\r\n"  # so that the first boundary looks like the others
        self._at = 0  # `_data` is parsed up to here; cut off once per feed, since each cut copies the rest
        self._parts = 0
        self._state = "preamble"  # preamble, tail, header, body, epilogue
        self.complete = False

    def feed(self, data: bytes) -> list[Event]:
        """Parse a piece and return the complete events. Raises a 400 for invalid multipart."""
        self._data += data
        events: list[Event] = []
        while self._step(events):
            pass
        self._data = self._data[self._at :]
        self._at = 0
        return events

    def _step(self, events: list[Event]) -> bool:
        if self._state == "epilogue":
            self._at = len(self._data)
            return False
        if self._state in ("preamble", "body"):
            return self._until_mark(events)
        if self._state == "tail":
            return self._after_mark()
        return self._header(events)

    def _until_mark(self, events: list[Event]) -> bool:
        in_body = self._state == "body"
        at = self._data.find(self._mark, self._at)
        if at < 0:
            safe = max(self._at, len(self._data) - len(self._mark) + 1)
            if safe > self._at and in_body:
                events.append((DATA, self._data[self._at : safe]))
            self._at = safe
            return False
        if in_body:
            if at > self._at:
                events.append((DATA, self._data[self._at : at]))
            events.append((FINISH, b""))
        self._at = at + len(self._mark)
        self._state = "tail"
        return True

    def _after_mark(self) -> bool:
        left = len(self._data) - self._at
        if left < 2:
            return False
        if self._data.startswith(b"--", self._at):
            self.complete = True
            self._state = "epilogue"
            return True
        end = self._data.find(b"\r\n", self._at)
        if end < 0:
            if left > 1024:
                raise bad_input("a multipart boundary must be followed by a line break", field="body")
            return False
        if self._data[self._at : end].strip(b" \t"):
            raise bad_input("a multipart boundary must be followed by a line break", field="body")
        self._at = end  # keep its CRLF: in a part without headers it begins the blank line
        self._state = "header"
        return True

    def _header(self, events: list[Event]) -> bool:
        end = self._data.find(b"\r\n\r\n", self._at)
        if end < 0:
            if len(self._data) - self._at > MAX_PART_HEADER:
                raise bad_input(f"a part's header is over {MAX_PART_HEADER} bytes: send less", field="body")
            return False
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise bad_input(f"the multipart body has over {MAX_PARTS} parts: send fewer", field="body")
        events.append((BEGIN, part_name(self._data[self._at : end])))
        self._at = end + 4
        self._state = "body"
        return True


def part_name(block: bytes) -> bytes:
    """Return the `name` of a part's Content-Disposition; b"" if there is none."""
    for line in block.split(b"\r\n"):
        key, _, value = line.partition(b":")
        if key.strip().lower() == b"content-disposition":
            return parameter(value, b"name") or b""
    return b""


def parameter(value: bytes, name: bytes) -> bytes | None:
    """Return one parameter of a header value such as `form-data; name="file"`, unquoted and unescaped."""
    at = value.find(b";")
    while at >= 0:
        equals = value.find(b"=", at)
        if equals < 0:
            return None
        key = value[at + 1 : equals].strip().lower()
        at = equals + 1
        if value[at : at + 1] == b'"':
            found, at = _unquoted(value, at + 1)
        else:
            end = value.find(b";", at)
            end = len(value) if end < 0 else end
            found, at = value[at:end].strip(), end
        if key == name:
            return found
        at = value.find(b";", at)
    return None


def _unquoted(value: bytes, at: int) -> tuple[bytes, int]:
    """Return the quoted string from here on, and where it ends."""
    result = bytearray()
    while at < len(value) and value[at] != 0x22:
        if value[at] == 0x5C and at + 1 < len(value):
            at += 1
        result.append(value[at])
        at += 1
    return bytes(result), at + 1


def boundary_of(content_type: str | None) -> bytes:
    """Return the boundary of a multipart/form-data content type. Raises a 400."""
    value = (content_type or "").encode("latin-1", "replace")
    kind = value.partition(b";")[0].strip().lower()
    boundary = parameter(value, b"boundary") if kind == b"multipart/form-data" else None
    if not boundary or len(boundary) > 200:
        raise bad_input("the body must be multipart/form-data with a boundary", field="content-type")
    return boundary
