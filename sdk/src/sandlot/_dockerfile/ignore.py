"""Docker's rules of .dockerignore: which paths of a context are left out."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from sandlot.errors import DockerfileError


@dataclass(frozen=True, slots=True)
class _Rule:
    match: re.Pattern[str]
    included: bool
    literal: str  # up to the first wildcard


class Ignore:
    """The patterns of a .dockerignore; the last one that matches a path, or a directory above it, decides."""

    def __init__(self, text: str = "", *, file: str = ".dockerignore") -> None:
        """Read the patterns. Raises DockerfileError."""
        self._rules: list[_Rule] = []
        for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
            if line.startswith("#"):
                continue
            pattern = line.strip()
            included = pattern.startswith("!")
            if included:
                pattern = pattern[1:].strip()
            if not pattern:
                continue
            pattern = posixpath.normpath(pattern).lstrip("/")
            if pattern in ("", "."):
                continue
            literal = re.split(r"[*?\[\\]", pattern, maxsplit=1)[0]
            try:
                self._rules.append(_Rule(re.compile(_regex(pattern)), included, literal))
            except re.error as error:
                reason = f"{pattern[:80]!r} is no pattern ({error}): correct it"
                raise DockerfileError(reason, file=file, line=number) from None

    def ignores(self, path: str) -> bool:
        """Return whether a file or directory, relative to the context, is left out."""
        parts = path.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        ignored = False
        for rule in self._rules:
            if rule.included == ignored and any(rule.match.fullmatch(one) for one in above):
                ignored = not rule.included
        return ignored

    def may_include_below(self, path: str) -> bool:
        """Return whether an exception may include something below an ignored directory."""
        for rule in self._rules:
            shorter = min(len(rule.literal), len(path) + 1)
            if rule.included and rule.literal[:shorter] == f"{path}/"[:shorter]:
                return True
        return False


def _regex(pattern: str) -> str:
    """Translate a pattern of Go's filepath.Match, and `**` for any number of directories."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**", at):
            at += 2
            if pattern.startswith("/", at):
                at += 1
                out.append("(?:.*/)?" if at < len(pattern) else ".*")
            else:
                out.append(".*")
            continue
        at += 1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[":
            end = pattern.find("]", at + 1)
            if end < 0:
                out.append(r"\[")
                continue
            inner = pattern[at:end].replace("\\", "\\\\").replace("[", r"\[")
            out.append(f"[{inner}]" if not inner.startswith("^") else f"[^/{inner[1:]}]")
            at = end + 1
        elif char == "\\" and at < len(pattern):
            out.append(re.escape(pattern[at]))
            at += 1
        else:
            out.append(re.escape(char))
    return "(?s:" + "".join(out) + ")"


def name_matches(pattern: str, name: str) -> bool:
    """Return whether a name without slashes matches a wildcard of COPY."""
    try:
        return re.fullmatch(_regex(pattern), name) is not None
    except re.error:
        return pattern == name


def has_wildcard(path: str) -> bool:
    return any(char in path for char in "*?[")
