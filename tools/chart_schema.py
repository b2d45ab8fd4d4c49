"""Builds the JSON schema of the chart's values, which helm checks before it renders a template."""

from __future__ import annotations

from typing import Any

from chart_values import BadValues, Value
from sandlot_gateway import runtime_classes

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
_QUANTITY: dict[str, Any] = {
    "type": ["string", "number"],
    "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$",
    "minimum": 0,
}
_CIDR: dict[str, Any] = {
    "type": "string",
    "pattern": r"^([0-9]{1,3}\.){3}[0-9]{1,3}/([0-9]|[12][0-9]|3[0-2])$|^[0-9a-fA-F:]+/[0-9]{1,3}$",
}
_CIDR4 = {"type": "string", "pattern": _CIDR["pattern"].partition("$|")[0] + "$"}
_PORT: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": 65535}
_NAME: dict[str, Any] = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"}


def closed(properties: dict[str, Any], *, required: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the schema of an object with these keys and no other."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return schema | ({"required": list(required)} if required else {})


_AMOUNTS = {"type": "object", "additionalProperties": _QUANTITY}
_TOLERATION = closed(
    {
        "key": {"type": "string"},
        "operator": {"enum": ["Exists", "Equal"]},
        "value": {"type": "string"},
        "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
        "tolerationSeconds": {"type": "integer"},
    }
)
_RULE = closed(
    {
        "name": _NAME,
        "cidrs": {"type": "array", "items": _CIDR, "minItems": 1},
        "ports": {"type": "array", "items": _PORT},
    },
    required=("name", "cidrs"),
)
_HOST = r"^(\*\.)?[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$"
_PARENT = closed(
    {
        "name": {"type": "string", "minLength": 1},
        "namespace": {"type": "string", "minLength": 1},
        "sectionName": {"type": "string", "minLength": 1},
    },
    required=("name",),
)
_COUNT: dict[str, Any] = {"type": ["integer", "null"], "minimum": 0}
_AMOUNT: dict[str, Any] = {"type": ["number", "null"], "minimum": 0, "maximum": 1_000_000_000}
# As the gateway reads them (quotas.py).
_QUOTAS = closed(
    {
        "sandboxes": _COUNT,
        "cores": _AMOUNT,
        "memory_gb": _AMOUNT,
        "gpus": _COUNT,
        "creates_per_second": _AMOUNT | {"minimum": 0.001, "maximum": 1_000_000},
        "creates_burst": _COUNT | {"minimum": 1},
        "checkpoint_bytes": _COUNT,
        "checkpoint_keep_seconds": _AMOUNT | {"minimum": 60},
        "weight": _COUNT | {"minimum": 1, "maximum": 1000},
    }
)
_PRICE: dict[str, Any] = {
    "type": ["string", "number"],
    "pattern": r"^(0?[0-9]{1,6}(\.[0-9]{1,9})?|1000000(\.0{1,9})?)$",
    "minimum": 0,
    "maximum": 1_000_000,
    "multipleOf": 1e-9,
}
# As the gateway reads them (prices.py).
_PRICES = closed(
    {
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
        "core_hour": _PRICE,
        "memory_gib_hour": _PRICE,
        "disk_gib_hour": _PRICE,
        "gpu_hour": _PRICE
        | {
            "type": ["string", "number", "object"],
            "patternProperties": {r"^[\s\S]{1,100}$": _PRICE},
            "additionalProperties": False,
            "required": ["*"],
            "maxProperties": 100,
        },
    }
)
_UPSTREAM = closed(
    {
        "name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$"},
        "host": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?$"},
        "url": {"type": "string", "pattern": "^https?://[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?$"},
        "credentialsSecret": {"type": "string"},
    },
    required=("name", "host", "url"),
)
# Schemas that are too long for a comment, selected by `@schema {kind: NAME}`. `pools` comes from the CRD.
KINDS: dict[str, dict[str, Any]] = {
    "cidr": _CIDR,
    "cidr4": _CIDR4,
    "resources": closed({"requests": _AMOUNTS, "limits": _AMOUNTS}),
    "tolerations": {"type": "array", "items": _TOLERATION},
    "host": {"type": "string", "pattern": _HOST},
    "runtimeClass": {
        "type": "string",
        "maxLength": runtime_classes.MOST,
        "pattern": f"^{runtime_classes.PATTERN}$",
    },
    "parentRefs": {"type": "array", "items": _PARENT},
    "egress": {"type": "array", "items": _RULE},
    "upstreams": {"type": "array", "items": _UPSTREAM},
    "prices": _PRICES,
    "quotas": {
        "type": "object",
        "patternProperties": {r"^(\*|[A-Za-z0-9._-]{1,64})$": _QUOTAS},
        "additionalProperties": False,
    },
}


def schema(values: list[Value], *, pool: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the whole file; `pool` is the CRD's schema of a SandboxPool's spec."""
    # Not by `propertyNames`: helm's message would name the wrong key.
    pools = {"type": "object", "patternProperties": {_NAME["pattern"]: _structural(pool)}}
    kinds = KINDS | {"pools": pools | {"additionalProperties": False}}
    properties = {value.name: _of(value, kinds=kinds) for value in values}
    # Helm adds `global` to the values of every subchart.
    properties["global"] = {"type": "object"}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the sandlot chart",
    } | closed(properties)


def _structural(rules: dict[str, Any]) -> dict[str, Any]:
    """Convert a structural schema to JSON schema with closed objects: the API server drops unknown keys."""
    kept = {
        key: rule for key, rule in rules.items() if key != "format" and not key.startswith("x-kubernetes")
    }
    if "properties" in kept:
        kept["properties"] = {name: _structural(rule) for name, rule in kept["properties"].items()}
        kept["additionalProperties"] = False
    return kept


def _of(value: Value, *, kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    said = {"description": value.text} if value.text else {}
    if value.children:
        return said | closed({child.name: _of(child, kinds=kinds) for child in value.children})
    return (
        said
        | _rules(value.rules, default=value.default, path=value.path, kinds=kinds)
        | {"default": value.default}
    )


def _rules(
    rules: dict[str, Any], *, default: Any, path: str, kinds: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Expand the short form: replace `kind`, `values` (of an open mapping) and `items`, keep the rest."""
    made: dict[str, Any] = {}
    rules = dict(rules)
    kind = rules.pop("kind", None)
    if kind is not None:
        if kind not in kinds:
            raise BadValues(f"{path}: unknown kind {kind!r}; use one of {', '.join(kinds)}")
        made.update(kinds[kind])
    if "values" in rules:
        made.update(
            {
                "type": "object",
                "additionalProperties": _rules(rules.pop("values"), default=None, path=path, kinds=kinds),
            }
        )
    if "items" in rules:
        made.update(
            {"type": "array", "items": _rules(rules.pop("items"), default=None, path=path, kinds=kinds)}
        )
    made.update(rules)
    if "type" not in made and "enum" not in made:
        if default is None:
            raise BadValues(f"{path}: null has no type; add @schema {{type: …}}")
        made["type"] = _TYPES[type(default)]
    if made.get("type") == "array" and "items" not in made:
        raise BadValues(f"{path}: the list has no item type; add @schema {{items: …}}")
    if (
        made.get("type") == "object"
        and not {"additionalProperties", "properties"} & made.keys()
        and default is not None
    ):
        raise BadValues(f"{path}: the mapping has no value type; add @schema {{values: …}}")
    return made
