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
_ASSIGNED = re.compile(r"(-{0,2}([\w.-]{1,80})=).", re.DOTALL)  # an argument with its value
_MOUNTED = "/etc/sandlot/"  # where a variable names a file instead of a value

_WORD = re.compile(r"[\w+/.-]{6,}")
# A name in a text up to its value; a JSON text within a JSON text has its quotes escaped.
_NAMED = rf"(?:{_TELLING})[\w-]{{0,40}}\\{{0,7}}[\"']?\s{{0,4}}[=:]\s{{0,4}}"
# Repetitions have bounds: else a long line of a hostile sandbox would take quadratic time.
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        REMOVED,
    ),
    (re.compile(r"\b(Bearer|Basic)\s+[^\s\"',]+", re.IGNORECASE), rf"\1 {REMOVED}"),
    # To the last @ of the authority: a password may have one, too.
    (re.compile(r"(://)[^\s/\"']+@"), rf"\1{REMOVED}@"),
    # A quoted value ends at its own quote, which has no more backslashes than the first; without one, with the line.
    (
        re.compile(
            rf"({_NAMED}(\\{{0,7}})([\"']))(?!{_MOUNTED}).+?(?:(?<!\\)(?=\2\3)|$)",
            re.IGNORECASE | re.MULTILINE,
        ),
        rf"\1{REMOVED}",
    ),
    (re.compile(r"(authorization\s{0,4}[=:]\s{0,4})[^\s\"'\\][^\r\n\"']*", re.IGNORECASE), rf"\1{REMOVED}"),
    (
        re.compile(rf"({_NAMED})(?!{_MOUNTED})[^\s\"'\\](?:\\.|[^\s\"'\\])*", re.IGNORECASE),
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

    def value(self, value: object, *, telling: bool = False) -> object:
        """Return a JSON value without secrets; a text that is JSON itself is looked into.

        `telling`: it stands below a telling name, so that every text in it is one.
        """
        if isinstance(value, dict):
            return self._object(cast(dict[str, Any], value), telling)
        if isinstance(value, list):
            return list(self._items(cast(list[object], value), telling))
        if not isinstance(value, str):
            return value
        return REMOVED if telling and _is_secret(value) else self._string(value)

    def _object(self, value: dict[str, Any], telling: bool) -> dict[str, object]:
        if _hidden_variable(value):
            return {**value, "value": REMOVED}
        return {
            name: self.value(inner, telling=_tells(name, telling))
            for name, inner in value.items()
            if name not in _DROPPED
        }

    def _items(self, items: list[object], telling: bool) -> Iterator[object]:
        flagged = False
        for item in items:
            if isinstance(item, str) and (assigned := _ASSIGNED.match(item)) and _tells(assigned[2], telling):
                value = item[len(assigned[1]) :]
                yield assigned[1] + (REMOVED if _is_secret(value) else value)
            else:
                yield self.value(item, telling=telling or (flagged and isinstance(item, str)))
            flagged = isinstance(item, str) and _FLAG.match(item) is not None

    def _string(self, value: str) -> str:
        if value[:1] in ("{", "["):
            try:
                return json.dumps(self.value(json.loads(value)))
            except ValueError:
                pass
        return self.text(value)


def _tells(name: str, outer: bool = False) -> bool:
    """Return whether what has this name is secret; `outer`: whether that is so of the object that has it."""
    return (outer or _NAME.search(name) is not None) and _HARMLESS.search(name) is None


def _is_secret(value: str) -> bool:
    """Return whether a text below a telling name is more than a file's name."""
    return value != "" and not value.startswith(_MOUNTED)


def _hidden_variable(value: dict[str, Any]) -> bool:
    """Return whether this is a variable of a container whose name says that its value is secret."""
    name, given = value.get("name"), value.get("value")
    return isinstance(name, str) and isinstance(given, str) and _is_secret(given) and _tells(name)


def _forms(value: str) -> Iterator[str]:
    """Yield a secret's value, the parts that are used by themselves, and each in base64."""
    for part in {value, value.strip(), *value.split(), *(line.partition(":")[0] for line in value.split())}:
        yield part
        yield base64.b64encode(part.encode()).decode().rstrip("=")


def secrets_in(value: object, *, telling: bool = False) -> Iterator[str]:
    """Yield the texts in a JSON value that stand below a telling name, to remove them elsewhere, too."""
    if isinstance(value, list):
        for item in cast(list[object], value):
            yield from secrets_in(item, telling=telling)
    elif isinstance(value, dict):
        for name, inner in cast(dict[str, Any], value).items():
            yield from secrets_in(inner, telling=_tells(name, telling))
    elif isinstance(value, str) and telling:
        if _is_secret(value):
            yield value
    elif isinstance(value, str) and value[:1] in ("{", "["):
        try:
            yield from secrets_in(json.loads(value))
        except ValueError:
            return
