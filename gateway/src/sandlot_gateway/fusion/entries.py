"""Bounds the values of a JSON body before it is parsed: each small one takes a hundred times its length as an object."""

from __future__ import annotations

import re
from itertools import islice

MOST = 10_000  # commas outside strings
_SMALL = 1 << 16  # bytes of a body that takes little memory, whatever it has
# A string may lack its end: else each quote in one without it would be tried as the beginning of another.
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.?+)*+(?:"|\Z)|,', re.DOTALL)


def has_too_many(body: bytes) -> bool:
    """Return whether a JSON text has more than MOST commas outside its strings."""
    if len(body) <= _SMALL:
        return False
    # Between two commas are at most a few strings; a text with more is no JSON, and parsers stop at it.
    tokens = islice(_TOKENS.finditer(body), 4 * MOST)
    return sum(token.end() - token.start() == 1 for token in tokens) > MOST
