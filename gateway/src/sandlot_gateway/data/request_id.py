"""The id of a request, in its response and in logs: the client's own, or a new one."""

from __future__ import annotations

import os
from itertools import count

_MOST = 128  # bytes of a client's own
_new = (b"%b-%x" % (os.urandom(4).hex().encode(), number) for number in count(1))


def identify(own: bytes) -> bytes:
    """Return the id of a request with this header, b"" for none."""
    return own[:_MOST] or next(_new)
