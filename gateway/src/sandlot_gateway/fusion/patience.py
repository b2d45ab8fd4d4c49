"""How much longer than verl a client waits for its answer, which its URL says (`/run_code?patience=SECONDS`), and what for."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

MOST = 3600.0
_ATTEMPTS = 3  # of code whose client has no patience
_DEAD = 20  # sandboxes found dead for which a client with patience does not pause
_LONGEST_PAUSE = 60.0  # seconds


class BadPatience(ValueError):
    """`patience` of a URL is no number of seconds from 0 to MOST."""

    def as_detail(self) -> list[dict[str, Any]]:
        """Return the error in FastAPI's form."""
        return [{"type": "value_error", "loc": ["query", "patience"], "msg": str(self)}]


def patience_of(query: bytes) -> float:
    """Return the seconds of a query string, 0 if it names none. Raises BadPatience."""
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("patience", ["0"])
    try:
        (seconds,) = map(float, given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MOST:  # also not for NaN
        raise BadPatience(f"patience must be a number of seconds from 0 to {MOST:g}")
    return seconds


def pause_after(losses: int, *, unused: int = 0, patience: float) -> float | None:
    """Return the seconds until code runs again whose sandbox was lost so many times; None: it does not.

    `unused` is how many were found dead before code was sent: a node that dies may leave many. Only time bounds the
    attempts of a client with patience. They get rare, as the code may be what fails.
    """
    if patience:
        losses += max(0, unused - _DEAD)
    if losses < _ATTEMPTS:
        return 0.0
    return min(2.0 ** (losses - _ATTEMPTS), _LONGEST_PAUSE) if patience else None
