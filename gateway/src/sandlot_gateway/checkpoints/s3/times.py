"""How soon a writer shows again that it is alive, and when others take it for dead."""

from __future__ import annotations

RENEW_EVERY = 2.0  # seconds
RENEW_WITHIN = 3.0  # seconds of one try, without another: the next one comes with the next renewal
DEAD_AFTER = 15.0  # seconds without a write, by the store's clock
_MARGIN = 5.0  # seconds: a store's times have whole seconds, and a machine may be busy

# A store that stalls one request must not end a writer: the write before it, this one and the next lie between.
assert 2 * (RENEW_EVERY + RENEW_WITHIN) + _MARGIN <= DEAD_AFTER
