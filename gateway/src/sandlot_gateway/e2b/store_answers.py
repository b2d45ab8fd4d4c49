"""Awaits answers of the checkpoints' store for a limited time; its failures become Problems."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from sandlot_gateway.checkpoints.errors import StoreError, Trouble

from .failures import Problem

_WITHIN = 10.0  # seconds, of a volume that may stall

T = TypeVar("T")


async def answer_of(work: Awaitable[T]) -> T:
    """Return what a call of the checkpoints' store returns. Raises Problem."""
    try:
        async with asyncio.timeout(_WITHIN):
            return await work
    except StoreError as error:
        if error.trouble is Trouble.FULL:
            raise Problem(507, error.text) from error
        raise Problem(503, error.text, headers=[(b"retry-after", b"1")]) from error
    except OSError as error:  # also a TimeoutError
        why = error.strerror or f"no answer within {_WITHIN:g} s"
        text = f"the store of the checkpoints cannot be used: {why}; try again, or tell the operator"
        raise Problem(503, text, headers=[(b"retry-after", b"1")]) from error
