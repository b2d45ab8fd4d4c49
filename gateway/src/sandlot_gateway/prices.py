"""Reads the operator's prices of usage from JSON, and keeps those of now."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from sandlot_gateway.core.costs import ANY_TYPE, DIGITS, Prices
from sandlot_gateway.followed_file import BadContent, read_json

_CURRENCY = re.compile("[A-Z]{3}")
_AMOUNT = re.compile(r"\d{1,7}(\.\d{1,9})?", re.ASCII)
_MOST = Decimal(1_000_000)
_LEAST = Decimal(1).scaleb(-DIGITS)
_NO_PRICE = Decimal(-1)
_HOURS = ("core_hour", "memory_gib_hour", "disk_gib_hour")
_FIELDS = ("currency", *_HOURS, "gpu_hour")
_TYPES = 100  # of GPUs that have a price
_LONGEST_TYPE = 100  # characters, as in a create


class BadPrices(BadContent):
    """Raised for invalid prices; the message names the field."""


class PriceList:
    """The prices of now; None without any. `is_type`: as in `Prices`."""

    def __init__(self, is_type: Callable[[str, str], bool] = str.__eq__) -> None:
        self._is_type = is_type
        self.now: Prices | None = None

    def replace(self, content: bytes | str) -> str:
        """Replace all prices and say what there is now. Raises BadPrices, and then changes nothing."""
        self.now = _parsed(content, self._is_type)
        return "it has no prices now" if self.now is None else f"it has prices in {self.now.currency} now"


def _parsed(content: bytes | str, is_type: Callable[[str, str], bool]) -> Prices | None:
    advice = "write one object of prices"
    found = read_json(content, error=BadPrices, advice=advice, parse_float=_number, parse_int=_whole)
    if not isinstance(found, dict):
        raise BadPrices('it must be an object such as {"currency": "EUR", "core_hour": "0.04"}')
    prices: dict[str, Any] = found
    for name in prices:
        if name not in _FIELDS:
            raise BadPrices(f"{name!r}: there is no such price; use {', '.join(_FIELDS)}"[:300])
    if not prices:
        return None
    currency = prices.get("currency")
    if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
        raise BadPrices("currency: must be a code of three capital letters such as EUR")
    cores, memory, disk = (_billionths(prices.get(name, "0"), name=name) for name in _HOURS)
    return Prices(currency, cores, memory, disk, _by_type(prices.get("gpu_hour", "0")), is_type)


def _by_type(given: object) -> dict[str, int]:
    if not isinstance(given, dict):
        return {ANY_TYPE: _billionths(given, name="gpu_hour")}
    found: dict[str, int] = {}
    for kind, amount in given.items():
        if not 1 <= len(kind) <= _LONGEST_TYPE:
            raise BadPrices(f"gpu_hour: a type has 1 to {_LONGEST_TYPE} characters, not {len(kind)}")
        found[kind] = _billionths(amount, name=f"gpu_hour[{kind!r}]")
    if ANY_TYPE not in found:
        raise BadPrices('gpu_hour: must have "*", the price of GPUs of all other types')
    if len(found) > _TYPES:
        raise BadPrices(f"gpu_hour: has {len(found)} types, and may have {_TYPES}")
    return found


def _billionths(given: object, *, name: str) -> int:
    """Return an amount exactly: JSON's numbers come as decimals, never as floats."""
    amount = Decimal(given) if isinstance(given, str) and _AMOUNT.fullmatch(given) else given
    if (
        isinstance(amount, Decimal) and 0 <= amount <= _MOST
    ):  # before `quantize`, since 1e999999999 is a number, too
        rounded = amount.quantize(_LEAST)
        if rounded == amount:
            return int(rounded.scaleb(DIGITS))
    raise BadPrices(
        f'{name}: must be a decimal from 0 to {_MOST} with at most {DIGITS} digits after the point, such as "0.04"'
    )


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # of an exponent with 19 digits
        return _NO_PRICE


def _whole(text: str) -> Decimal:
    return Decimal(text[:100])  # one of thousands of digits takes long, and is none that may be
