"""Where a sandbox may send: the policy's body checked, and what the executor needs of it."""

from __future__ import annotations

from . import fields
from .errors import bad_input

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_RULES = 1024
_LIMITS = ((0, 0xFFFFFFFF), (0, 32), (0, 65535), (0, 65535))


# Before any was set.
NONE: dict[str, Any] = {"allow": False, "rules": [], "policy": None, "generation": 1}


def parse(body: dict[str, Any]) -> dict[str, Any]:
    """`allow`: what a match means; `rules`: [network, prefix, lowest port, highest port]; `policy`: kept as it is.

    Raises a 400.
    """
    rules = body.get("rules")
    if not isinstance(rules, list) or len(rules) > MAX_RULES:
        raise bad_input(f"rules must be a list of at most {MAX_RULES}", field="rules")
    for rule in rules:
        if not _good(rule):
            raise bad_input("a rule is [network, prefix, lowest port, highest port]", field="rules")
    allow = fields.flag(body, "allow", default=False)
    return {"allow": allow, "rules": rules, "policy": fields.mapping(body, "policy")}


def _good(rule: Any) -> bool:
    if not isinstance(rule, list) or len(rule) != len(_LIMITS):
        return False
    for value, (low, high) in zip(rule, _LIMITS, strict=True):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            return False
    return rule[2] <= rule[3] and (rule[2] > 0) == (rule[3] > 0)


def rules(held: dict[str, Any]) -> dict[str, Any]:
    """What of it is compared and held."""
    return {"allow": held["allow"], "rules": held["rules"]}


def document(held: dict[str, Any] | None) -> dict[str, Any]:
    """The route's answer."""
    held = held or NONE
    return {"policy": held["policy"], "generation": held["generation"]}
