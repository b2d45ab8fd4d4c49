"""Turns a value with `$NAME` into a command that prints it with the variables of the sandbox, without I/O."""

from __future__ import annotations

import re

_PLAIN = re.compile(r'["`]|\\(?!\$)|\$(?=\()')


def needs_shell(value: str) -> bool:
    return "$" in value


def printing(value: str) -> str:
    """Return a shell command that prints the value with variables replaced; it runs no other command."""
    return "printf %s " + '"' + _PLAIN.sub(lambda found: "\\" + found[0], value) + '"'
