"""Words of an instruction: expansion of variables and quotes as Docker does it, and the JSON form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fnmatch import translate

Lookup = Callable[[str], str | None]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BadWord(Exception):
    """Raised for a word that cannot be expanded; the message says why."""


def expand(text: str, lookup: Lookup, *, escape: str = "\\") -> str:
    """Expand variables, and remove quotes and escapes. Raises BadWord."""
    return _Reader(text, lookup, escape, unquote=True).read()


def expand_only(text: str, lookup: Lookup, *, escape: str = "\\") -> str:
    """Expand variables of a heredoc, whose quotes are text. Raises BadWord."""
    return _Reader(text, lookup, escape, unquote=False).read()


def split(text: str, *, escape: str = "\\") -> list[str]:
    """Split at spaces outside of quotes; quotes and escapes stay. Raises BadWord."""
    found: list[str] = []
    word, quote, index = "", "", 0
    while index < len(text):
        char = text[index]
        index += 1
        if not quote and char.isspace():
            if word:
                found.append(word)
            word = ""
            continue
        word += char
        if char == escape and quote != "'" and index < len(text):
            word += text[index]
            index += 1
        elif char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote = char
    return [*found, word] if word else found


def pairs(text: str, *, escape: str = "\\", legacy: bool = True) -> list[tuple[str, str]]:
    """Return the NAME=VALUE pairs of ENV and LABEL, also of the form `NAME VALUE`. Raises BadWord."""
    words = split(text, escape=escape)
    if legacy and "=" not in words[0]:
        value = text[len(words[0]) :].strip()
        if not value:
            raise BadWord(f"{words[0][:40]} has no value: write {words[0][:40]}=VALUE")
        return [(words[0], value)]
    found: list[tuple[str, str]] = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise BadWord(f"{word[:40]!r} is not NAME=VALUE: quote values with spaces")
        if not name:
            raise BadWord("a name is empty: write NAME=VALUE")
        found.append((name, value))
    return found


def json_words(text: str) -> list[str] | None:
    """Return the strings of a JSON array, or None if the text is not one: it is then the shell form."""
    if not text.startswith("["):
        return None
    try:
        words = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(words, list) and all(isinstance(word, str) for word in words):  # pyright: ignore[reportUnknownVariableType]
        return [str(word) for word in words]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return None


class _Reader:
    """Reads one word from left to right."""

    def __init__(self, text: str, lookup: Lookup, escape: str, *, unquote: bool) -> None:
        self._text = text
        self._lookup = lookup
        self._escape = escape
        self._unquote = unquote
        self._at: int = 0
        self._depth = 0

    def read(self, *, until: str = "") -> str:
        out: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in until:
                return "".join(out)
            if char == "'" and self._unquote:
                out.append(self._single())
            elif char == '"' and self._unquote:
                out.append(self._double())
            elif char == "$":
                out.append(self._variable())
            elif char == self._escape:
                out.append(self._escaped())
            else:
                out.append(char)
                self._at += 1
        if until:
            raise BadWord("a } is missing: close the variable")
        return "".join(out)

    def _escaped(self) -> str:
        self._at += 1
        if self._at >= len(self._text):
            return self._escape
        char = self._text[self._at]
        self._at += 1
        return char if self._unquote or char in ("$", self._escape) else self._escape + char

    def _single(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise BadWord("a single quote is missing: close the quotes")
        begin, self._at = self._at + 1, end + 1
        return self._text[begin:end]

    def _double(self) -> str:
        out: list[str] = []
        self._at += 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return "".join(out)
            if char == "$":
                out.append(self._variable())
                continue
            if char == self._escape and self._at + 1 < len(self._text):
                following = self._text[self._at + 1]
                out.append(following if following in ('"', "$", self._escape) else char + following)
                self._at += 2
                continue
            out.append(char)
            self._at += 1
        raise BadWord("a double quote is missing: close the quotes")

    def _variable(self) -> str:
        self._at += 1
        if self._text[self._at : self._at + 1] != "{":
            match = _NAME.match(self._text, self._at)
            if match is None:
                return "$"
            self._at = match.end()
            return self._lookup(match[0]) or ""
        match = _NAME.match(self._text, self._at + 1)
        if match is None:
            raise BadWord("${ has no name: write ${NAME}")
        self._at = match.end()
        value = self._lookup(match[0])
        if self._text[self._at : self._at + 1] == "}":
            self._at += 1
            return value or ""
        return self._modified(match[0], value)

    def _modified(self, name: str, value: str | None) -> str:
        operator = re.compile(r":?[-+?]|##?|%%?|//?").match(self._text, self._at)
        if operator is None:
            raise BadWord(f"${{{name} has an unknown modifier: use one of :- :+ :? - + ? # % /")
        self._at = operator.end()
        self._depth += 1
        if self._depth > 50:
            raise BadWord(f"${{{name} is nested too deeply: simplify it")
        kind = operator[0]
        begin = self._at
        word, new = self.read(until="/}" if kind[0] == "/" else "}"), ""
        if self._text[self._at] == "/":
            self._at += 1
            new = self.read(until="}")
        raw = self._text[begin : self._at]
        self._depth -= 1
        self._at += 1
        if kind[0] == "/":
            count = 1 if kind == "/" else 0
            return re.sub(_inner(word), lambda _: new, value or "", count=count) if word else value or ""
        if kind[0] in "#%":
            return _cut(value or "", kind, word)
        there = bool(value) if kind.startswith(":") else value is not None
        if kind[-1] == "-":
            return (value or "") if there else word
        if kind[-1] == "+":
            return word if there else ""
        if not there:
            raise BadWord(f"{name} is not set: {(raw if '$' in raw else word) or 'set it'}")
        return value or ""


def _cut(value: str, kind: str, pattern: str) -> str:
    """Remove the shortest or longest prefix or suffix that matches."""
    match = re.compile(_inner(pattern))
    sizes = range(len(value) + 1)
    for size in sizes if len(kind) == 1 else reversed(sizes):
        part = value[:size] if kind[0] == "#" else value[len(value) - size :]
        if match.fullmatch(part):
            return value[size:] if kind[0] == "#" else value[: len(value) - size]
    return value


def _inner(pattern: str) -> str:
    return translate(pattern).removesuffix(r"\Z").removesuffix(r"\z")
