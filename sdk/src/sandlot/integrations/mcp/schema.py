"""The part of JSON Schema that the tools' arguments use: functions that build it, and a check of a value against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

Schema = dict[str, Any]


def text(description: str, *, longest: int = 4096, choices: Sequence[str] = (), **more: Any) -> Schema:
    """Return the schema of a string of at most `longest` characters."""
    bounds = {"enum": list(choices)} if choices else {"maxLength": longest}
    return {"type": "string", "description": description, **bounds, **more}


def integer(description: str, *, least: int, most: int, **more: Any) -> Schema:
    return {"type": "integer", "description": description, "minimum": least, "maximum": most, **more}


def number(description: str, *, least: float, most: float, **more: Any) -> Schema:
    return {"type": "number", "description": description, "minimum": least, "maximum": most, **more}


def flag(description: str, **more: Any) -> Schema:
    return {"type": "boolean", "description": description, **more}


def texts(description: str, *, most: int = 64, longest: int = 1024) -> Schema:
    """Return the schema of a list of strings."""
    items = {"type": "string", "maxLength": longest}
    return {"type": "array", "description": description, "items": items, "maxItems": most}


def variables(description: str) -> Schema:
    """Return the schema of an object of strings."""
    values = {"type": "string"}
    return {
        "type": "object",
        "description": description,
        "additionalProperties": values,
        "maxProperties": 256,
    }


def arguments(required: Sequence[str] = (), /, **properties: Schema) -> Schema:
    """Return the schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def result(optional: Sequence[str] = (), /, **properties: Schema) -> Schema:
    """Return the schema of a tool's result; later versions may add fields."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def out(kind: str | list[str], description: str) -> Schema:
    """Return the schema of one field of a result."""
    return {"type": kind, "description": description}


def check(value: object, schema: Mapping[str, Any], *, name: str = "") -> None:
    """Raise ValueError, with the field's name, if `value` does not match the schema."""
    kind: str = schema["type"]
    if not _is(value, kind):
        raise ValueError(f"{name or 'arguments'}: must be {_KINDS[kind]}, not {_told(value)}")
    if kind == "object":
        _check_object(cast(Mapping[str, object], value), schema, name=name)
    elif kind == "array":
        items = cast(list[object], value)
        if len(items) > schema["maxItems"]:
            raise ValueError(f"{name}: must have at most {schema['maxItems']} items, not {len(items)}")
        for index, item in enumerate(items):
            check(item, schema["items"], name=f"{name}[{index}]")
    elif kind == "string":
        _check_text(cast(str, value), schema, name=name)
    elif kind in ("integer", "number"):
        amount = cast(float, value)
        if not schema["minimum"] <= amount <= schema["maximum"]:
            raise ValueError(
                f"{name}: must be from {schema['minimum']:g} to {schema['maximum']:g}, not {_told(value)}"
            )


def _check_object(value: Mapping[str, object], schema: Mapping[str, Any], *, name: str) -> None:
    prefix = f"{name}." if name else ""
    known: Mapping[str, Schema] = schema.get("properties", {})
    others: Schema | bool = schema["additionalProperties"]
    if len(value) > schema.get("maxProperties", len(value)):
        raise ValueError(f"{name}: must have at most {schema['maxProperties']} entries, not {len(value)}")
    for missing in (field for field in schema.get("required", ()) if field not in value):
        raise ValueError(f"{prefix}{missing}: is required")
    for field, item in value.items():
        wanted = known.get(field, others)
        if wanted is False:
            raise ValueError(
                f"{prefix}{field[:64]}: there is no such argument; the tool has {', '.join(known)}"
            )
        check(item, cast(Schema, wanted), name=f"{prefix}{field[:64]}")


def _check_text(value: str, schema: Mapping[str, Any], *, name: str) -> None:
    if "enum" in schema and value not in schema["enum"]:
        raise ValueError(f"{name}: must be {' or '.join(schema['enum'])}, not {_told(value)}")
    if len(value) > schema.get("maxLength", len(value)):
        raise ValueError(f"{name}: must have at most {schema['maxLength']} characters, not {len(value)}")
    if len(value) < schema.get("minLength", 0):
        raise ValueError(f"{name}: must not be empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: has half a surrogate pair, which is no text") from None


_KINDS = {
    "object": "an object",
    "array": "a list",
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


def _is(value: object, kind: str) -> bool:
    match kind:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


def _told(value: object) -> str:
    """Return a caller's value for a message, short, since it may be of any size."""
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, bool | float) or value is None:
        return repr(value)
    return (
        f"{value}"
        if isinstance(value, int) and abs(value) < 1 << 63
        else f"a value of type {type(value).__name__}"
    )
