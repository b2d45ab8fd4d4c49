"""Reads the chart's values.yaml with its comments: the name, meaning and rules of every setting."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_DIRECTIVE = re.compile(r"@schema\s+(\{.*\})\s*\Z")


class BadValues(ValueError):
    """values.yaml cannot be turned into a schema; the message names the key."""


@dataclass(slots=True)
class Value:
    """One key: a section with `children`, or a setting with its `rules` (the mapping after `@schema`)."""

    path: str
    default: Any
    text: str
    rules: dict[str, Any]
    children: list[Value] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


def read(path: Path) -> list[Value]:
    """Parse the top level of the file. Raises BadValues."""
    text = path.read_text()
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(node, yaml.MappingNode):
        raise BadValues(f"{path.name} is not a mapping")
    return _section(node, prefix="", lines=text.splitlines())


def _section(node: yaml.MappingNode, *, prefix: str, lines: list[str]) -> list[Value]:
    found: list[Value] = []
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        words, rules = _comment(lines, key.start_mark.line, path)
        if isinstance(value, yaml.MappingNode) and value.value and not value.flow_style and not rules:
            found.append(Value(path, None, words, {}, _section(value, prefix=f"{path}.", lines=lines)))
            continue
        if not words:
            raise BadValues(f"{path} has no description; add a comment above it")
        found.append(Value(path, yaml.safe_load(yaml.serialize(value)), words, rules))
    return found


def _comment(lines: list[str], line: int, path: str) -> tuple[str, dict[str, Any]]:
    """Return the comment directly above a key, without its directive."""
    above: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        above.insert(0, lines[line].lstrip().removeprefix("#").strip())
    words: list[str] = []
    rules: dict[str, Any] = {}
    for text in above:
        if not text.startswith("@schema"):
            words.append(text)
            continue
        match = _DIRECTIVE.match(text)
        try:
            rules.update(yaml.safe_load(match[1] if match else ""))
        except (yaml.YAMLError, TypeError, ValueError) as error:
            raise BadValues(f"{path}: cannot read {text!r}") from error
    return " ".join(words), rules
