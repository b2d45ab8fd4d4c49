"""Removes secrets from texts and objects: known values, fields with telling names, and what looks like a key."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

REMOVED = "(removed)"
_SHORTEST = 6  # of a known value; shorter ones are words of every text
_DROPPED = {"managedFields", "kubectl.kubernetes.io/last-applied-configuration"}

_TELLING = r"passw(?:or)?d|passphrase|secret|token|credentials?|api[-_]?keys?|private[-_]?key|access[-_]?key|authorization"
_NAME = re.compile(
    rf"(?:{_TELLING}|^auth$|^dockerconfigjson$|\.dockerconfigjson$|_key$|_keys$)", re.IGNORECASE
)
# Names of things about a secret, which tell nothing of its value.
_HARMLESS = re.compile(r"(?:name|file|dir|path|type|class|seconds|namespace|ref)$", re.IGNORECASE)
_FLAG = re.compile(rf"^--?[\w-]*(?:{_TELLING})$", re.IGNORECASE)
_MOUNTED = "/etc/sandlot/"  # where a variable names a file instead of a value

_WORD = re.compile(r"[\w+/.-]{6,}")
# Repetitions have bounds: else a long line of a hostile sandbox would take quadratic time.
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        REMOVED,
    ),
    (re.compile(r"\b(Bearer|Basic)\s+[^\s\"',]+", re.IGNORECASE), rf"\1 {REMOVED}"),
    (re.compile(r"(://)[^\s/@\"']+@"), rf"\1{REMOVED}@"),
    # NAME=value, NAME: value, "name": "value"; a JSON text within a JSON text has its quotes escaped.
    (
        re.compile(
            rf"((?:{_TELLING})[\w-]{{0,40}}\\?[\"']?\s{{0,4}}[=:]\s{{0,4}}\\?[\"']?)(?!\()(?!{_MOUNTED})[^\s\"'\\,;&}}\])]+",
            re.IGNORECASE,
        ),
        rf"\1{REMOVED}",
    ),
    (re.compile(r"\beyJ[\w-]{8,400}\.[\w-]+\.[\w-]*"), REMOVED),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\b(?:gh[pousr]|glpat|xox[abp])[-_][\w-]{10,}"), REMOVED),
    (re.compile(r"(?<!sha256:)(?<![0-9A-Fa-f])[0-9a-fA-F]{32,}(?![0-9A-Fa-f])"), REMOVED),
    (
        re.compile(
            r"(?<![\w+/=-])(?=[\w+/-]*[a-z])(?=[\w+/-]*[A-Z])(?=[\w+/-]*[0-9])(?:[A-Za-z0-9+_-]{32,}|[A-Za-z0-9+/]{40,})={0,2}(?![\w+/=-])"
        ),
        REMOVED,
    ),
)


class Redactor:
    """Removes the values of `known` wherever they occur, and those of `tokens`, of which there may be thousands, as words."""

    def __init__(self, known: Iterable[str] = (), tokens: Iterable[str] = ()) -> None:
        values = {form for value in known for form in _forms(value) if len(form) >= _SHORTEST}
        self._known = sorted(values, key=len, reverse=True)
        self._tokens = {form for token in tokens for form in _forms(token)}

    def text(self, text: str) -> str:
        if len(text) < _SHORTEST:
            return text
        for value in self._known:
            text = text.replace(value, REMOVED)
        if self._tokens:
            text = _WORD.sub(self._word, text)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text

    def _word(self, found: re.Match[str]) -> str:
        return REMOVED if found[0] in self._tokens else found[0]

    def value(self, value: object) -> object:
        """Return a JSON value without secrets; a text that is JSON itself is looked into."""
        if isinstance(value, dict):
            return self._object(cast(dict[str, Any], value))
        if isinstance(value, list):
            return list(self._items(cast(list[object], value)))
        return self._string(value) if isinstance(value, str) else value

    def _object(self, value: dict[str, Any]) -> dict[str, object]:
        if _hidden_variable(value):
            return {**value, "value": REMOVED}
        found: dict[str, object] = {}
        for name, inner in value.items():
            if name in _DROPPED:
                continue
            telling = _NAME.search(name) is not None and _HARMLESS.search(name) is None
            secret = telling and isinstance(inner, str) and inner and not inner.startswith(_MOUNTED)
            found[name] = REMOVED if secret else self.value(inner)
        return found

    def _items(self, items: list[object]) -> Iterator[object]:
        flagged = False
        for item in items:
            yield REMOVED if flagged and isinstance(item, str) else self.value(item)
            flagged = isinstance(item, str) and _FLAG.match(item) is not None

    def _string(self, value: str) -> str:
        if value[:1] in ("{", "["):
            try:
                return json.dumps(self.value(json.loads(value)))
            except ValueError:
                pass
        return self.text(value)


def _hidden_variable(value: dict[str, Any]) -> bool:
    """Return whether this is a variable of a container whose name says that its value is secret."""
    name, given = value.get("name"), value.get("value")
    if not isinstance(name, str) or not isinstance(given, str) or not given or given.startswith(_MOUNTED):
        return False
    return _NAME.search(name) is not None and _HARMLESS.search(name) is None


def _forms(value: str) -> Iterator[str]:
    """Yield a secret's value, the parts that are used by themselves, and each in base64."""
    for part in {value, value.strip(), *value.split(), *(line.partition(":")[0] for line in value.split())}:
        yield part
        yield base64.b64encode(part.encode()).decode().rstrip("=")


def secrets_in(value: object) -> Iterator[str]:
    """Yield the texts in a JSON value that stand below a telling name, to remove them elsewhere, too."""
    if isinstance(value, list):
        for item in cast(list[object], value):
            yield from secrets_in(item)
    if not isinstance(value, dict):
        return
    for name, inner in cast(dict[str, Any], value).items():
        if isinstance(inner, str) and _NAME.search(name) and not _HARMLESS.search(name):
            yield inner
        elif isinstance(inner, str) and inner[:1] == "{":
            try:
                yield from secrets_in(json.loads(inner))
            except ValueError:
                continue
        else:
            yield from secrets_in(inner)
