"""Calls listeners; one that fails keeps nothing from the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

_log = logging.getLogger(__name__)


def tell(listeners: Sequence[Callable[..., None]], *news: object) -> None:
    for listener in listeners:
        try:
            listener(*news)
        except Exception:
            # Else the rest of a list would be missing, or its watch would list again and again.
            _log.exception("a listener failed; it misses a change")
