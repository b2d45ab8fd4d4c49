"""Encodes the frames of a command's stream, or of a watch: a byte of kind, four bytes of length (big endian), the payload."""

CONTENT_TYPE = "application/vnd.sandlot.frames"
HEADER = 5  # bytes before the payload
STDOUT, STDERR, KEEP_ALIVE, START, END, EVENTS = b"oeksxw"


def frame(kind: int, payload: bytes) -> bytes:
    return bytes((kind,)) + len(payload).to_bytes(4, "big") + payload
