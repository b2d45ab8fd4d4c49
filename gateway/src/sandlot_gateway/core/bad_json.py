"""What reading JSON raises for bytes that are none of a type: msgspec's own error covers neither encoding nor depth."""

from __future__ import annotations

import msgspec

NOT_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
