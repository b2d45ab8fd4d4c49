"""Validators of JSON and query fields: each returns the value or raises a 400 that names the field."""

from __future__ import annotations

from sandlot_contract.signals import signal_number

from ..core.errors import bad_input

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_SECONDS = 1e9
MAX_INT = 1 << 53
MAX_DEPTH = 64  # of a stored document: json.dumps recurses once per level


def clean(value: object, name: str) -> str:
    """Return a string that the kernel accepts: without NUL, and encodable with surrogateescape."""
    if not isinstance(value, str):
        raise bad_input(f"{name} must be a string", field=name)
    if "\0" in value:
        raise bad_input(f"{name} must not contain NUL", field=name)
    if not value.isascii():
        try:
            value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise bad_input(f"{name} contains a lone surrogate", field=name) from error
    return value


def text(
    body: dict[str, Any],
    name: str,
    *,
    default: str | None = None,
    required: bool = False,
    limit: int = 1 << 20,
) -> str | None:
    """Return a string of at most `limit` characters without NUL; null and absent give the default."""
    value = body.get(name)
    if value is None:
        if required:
            raise bad_input(f"{name} is required", field=name)
        return default
    value = clean(value, name)
    if len(value) > limit:
        raise bad_input(f"{name} is longer than {limit} characters", field=name)
    return value


def flag(body: dict[str, Any], name: str, *, default: bool) -> bool:
    """Return a boolean; null and absent give the default."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad_input(f"{name} must be true or false", field=name)
    return value


def seconds(body: dict[str, Any], name: str, *, minimum: float = 0.0) -> float | None:
    """Return a finite number of seconds above `minimum`; null and absent give None (no limit)."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad_input(f"{name} must be a number of seconds", field=name)
    if not minimum < value <= MAX_SECONDS:
        raise bad_input(f"{name} must be above {minimum:g} and at most {MAX_SECONDS:g} seconds", field=name)
    return float(value)


def integer(
    body: dict[str, Any], name: str, *, minimum: int, maximum: int = MAX_INT, default: int | None = None
) -> int | None:
    """Return an integer within the range; null and absent give the default."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise bad_input(f"{name} must be a whole number", field=name)
    if not minimum <= value <= maximum:
        raise bad_input(f"{name} must be from {minimum} to {maximum}", field=name)
    return value


def number(body: dict[str, Any], name: str, *, minimum: float, maximum: float) -> float | None:
    """Return a finite number within the range; null and absent give None."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
        raise bad_input(f"{name} must be a number from {minimum:g} to {maximum:g}", field=name)
    return float(value)


def strings(body: dict[str, Any], name: str, *, most: int) -> list[str]:
    """Return a list of at most `most` strings without NUL; null and absent give an empty one."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > most:
        raise bad_input(f"{name} must be a list of at most {most} strings", field=name)
    return [clean(item, name) for item in value]


def mapping(body: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object; null and absent give an empty one."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_input(f"{name} must be an object", field=name)
    return value


def document(body: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object of bounded depth; null and absent give an empty one."""
    value = mapping(body, name)
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
        level = [item for item in inner if isinstance(item, dict | list)]
        if not level:
            return value
    raise bad_input(f"{name} is nested over {MAX_DEPTH} levels deep: flatten it", field=name)


def environment(body: dict[str, Any], name: str) -> dict[str, str]:
    """Return environment variables: names without `=` and NUL, string values without NUL."""
    value = body.get(name)
    if not value and (value is None or isinstance(value, dict)):
        return {}
    if not isinstance(value, dict):
        raise bad_input(f"{name} must be an object of strings", field=name)
    for key, item in value.items():
        if not key or "=" in key:
            raise bad_input(f"{name} has a name that is empty or contains `=`", field=name)
        clean(item, f"{name}.{clean(key, name)}")
    return value


def command(body: dict[str, Any], name: str, *, required: bool) -> str | list[str] | None:
    """Return a shell string or a non-empty argv."""
    value = body.get(name)
    if value is None:
        if required:
            raise bad_input(f"{name} is required", field=name)
        return None
    if isinstance(value, str):
        return clean(value, name)
    if not isinstance(value, list) or not value:
        raise bad_input(f"{name} must be a string or a non-empty list of strings", field=name)
    for item in value:
        clean(item, name)
    if not value[0]:
        raise bad_input(f"the first item of {name} must name a program", field=name)
    return value


def signal(body: dict[str, Any], name: str, *, required: bool) -> int | None:
    """Return a signal's number; null and absent give None unless it is required."""
    value = body.get(name)
    if value is None and not required:
        return None
    try:
        return signal_number(value)
    except ValueError as error:
        raise bad_input(f"{name} {error}", field=name) from error


def user(body: dict[str, Any], name: str) -> str | int | None:
    """Return a user's name or number; a string of digits is a number."""
    value = body.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, str):
        if value.isascii() and value.isdigit():
            value = int(value)
        else:
            return text(body, name, limit=256)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < (1 << 32) - 1:
        raise bad_input(f"{name} must be a user's name or number", field=name)
    return value


def query_int(
    query: dict[str, str], name: str, *, default: int | None = None, minimum: int = 0, maximum: int = MAX_INT
) -> int | None:
    """Return an integer of the query string within the range."""
    value = query.get(name)
    if value is None or value == "":
        return default
    digits = value[1:] if value.startswith("-") else value
    if (
        not (digits.isascii() and digits.isdigit() and len(digits) < 19)
        or not minimum <= int(value) <= maximum
    ):
        raise bad_input(f"{name} must be a whole number from {minimum} to {maximum}", field=name)
    return int(value)


def query_flag(query: dict[str, str], name: str, *, default: bool) -> bool:
    """Return a boolean of the query string: `1`/`true` or `0`/`false`."""
    value = query.get(name)
    if value is None or value == "":
        return default
    if value in ("1", "true"):
        return True
    if value in ("0", "false"):
        return False
    raise bad_input(f"{name} must be 0 or 1", field=name)


def query_seconds(query: dict[str, str], name: str, *, maximum: float) -> float | None:
    """Return seconds of the query string, capped at the maximum."""
    value = query.get(name)
    if value is None or value == "":
        return None
    try:
        result = float(value)
    except ValueError as error:
        raise bad_input(f"{name} must be a number of seconds", field=name) from error
    if not result >= 0.0:
        raise bad_input(f"{name} must not be negative", field=name)
    return min(result, maximum)
