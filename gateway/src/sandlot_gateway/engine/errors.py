"""Why a create or a reset does not go on; control/errors.py makes answers of them."""

from __future__ import annotations


class QuotaReached(Exception):
    """The tenant has as many live sandboxes as it may."""


class BadRequestField(Exception):
    """The create cannot succeed as it was asked for; `field` is the name on the wire."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class ResetFailed(Exception):
    """`code`: no_overlay (nothing happened), unreachable (unknown), not_equal (the sandbox has ended)."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code
