"""The body of an egress policy: validation, comparison and the route's response."""

from __future__ import annotations

from ...core.errors import bad_input
from .. import fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_RULES = 1024
_LIMITS = ((0, 0xFFFFFFFF), (0, 32), (0, 65535), (0, 65535))
PORTS = (80, 443)  # ports where a connection names its host: HTTP, TLS


# The policy before any was set.
NONE: dict[str, Any] = {"allow": False, "rules": [], "policy": None, "generation": 1}


def parse(body: dict[str, Any]) -> dict[str, Any]:
    """Return the validated policy.

    `allow` is what a match means, `policy` is kept as is. `rules` are [network, prefix, lowest port, highest port]
    or [host or *.host, port], where port 0 is each of PORTS and `*.` matches all names below the host.

    Raises a 400.
    """
    rules = body.get("rules")
    if not isinstance(rules, list) or len(rules) > MAX_RULES:
        raise bad_input(f"rules must be a list of at most {MAX_RULES} rules", field="rules")
    for rule in rules:
        if not _good(rule):
            text = "a rule must be [network, prefix, lowest port, highest port] or [host in lower case, 0, 80 or 443]"
            raise bad_input(text, field="rules")
    allow = fields.flag(body, "allow", default=False)
    return {"allow": allow, "rules": rules, "policy": fields.mapping(body, "policy")}


def _good(rule: Any) -> bool:
    if isinstance(rule, list) and len(rule) == 2:
        return _good_name(*rule)
    if not isinstance(rule, list) or len(rule) != len(_LIMITS):
        return False
    for value, (low, high) in zip(rule, _LIMITS, strict=True):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            return False
    return rule[2] <= rule[3] and (rule[2] > 0) == (rule[3] > 0)


def _good_name(name: Any, port: Any) -> bool:
    if not isinstance(name, str) or port not in (0, *PORTS):
        return False
    # Imported by the first policy with hosts, as is the proxy.
    from .asked_host import NoHostName, clean

    try:
        return clean(name.removeprefix("*.")) == name.removeprefix("*.")
    except NoHostName:
        return False


def same(held: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Return whether two policies have the same effect; their `policy` may differ."""
    return held["allow"] == wanted["allow"] and held["rules"] == wanted["rules"]


def document(held: dict[str, Any] | None) -> dict[str, Any]:
    """Return the route's response."""
    held = held or NONE
    return {"policy": held["policy"], "generation": held["generation"]}
