"""Splits a Dockerfile into its instructions: parser directives, comments, line continuations and heredocs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandlot.errors import DockerfileError

_DIRECTIVE = re.compile(r"#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=\s*(.+?)\s*\Z")
_HEREDOC = re.compile(r"\d*<<(-?)([^<]+)\Z")
_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*'|["'\\])+""", re.DOTALL)
_FLAG = re.compile(r"--([a-z][a-z-]*)(?:=(\S*))?(?:\s+|\Z)")
KEYWORDS = frozenset(
    [
        "ADD",
        "ARG",
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "HEALTHCHECK",
        "LABEL",
        "MAINTAINER",
        "ONBUILD",
        "RUN",
        "SHELL",
        "STOPSIGNAL",
        "USER",
        "VOLUME",
        "WORKDIR",
    ]
)
_WITH_HEREDOCS = frozenset(["ADD", "COPY", "RUN"])
_WITH_FLAGS = frozenset(["ADD", "COPY", "FROM", "HEALTHCHECK", "RUN"])


@dataclass(frozen=True, slots=True)
class Heredoc:
    """A heredoc of an instruction; `quoted`: its variables are not expanded; `text` ends with a newline."""

    name: str
    text: str
    quoted: bool
    strips_tabs: bool

    def content(self) -> str:
        """Return the text as a file has it."""
        return re.sub(r"(?m)^\t+", "", self.text) if self.strips_tabs else self.text


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `rest` is its text after keyword and flags, `line` its first line, from 1."""

    keyword: str
    rest: str
    line: int
    flags: tuple[tuple[str, str], ...] = ()
    heredocs: tuple[Heredoc, ...] = ()

    @property
    def short(self) -> str:
        """The instruction as written, cut for an error message; it has no value of a build argument."""
        flags = "".join(f"--{name}={value} " if value else f"--{name} " for name, value in self.flags)
        text = " ".join(f"{self.keyword} {flags}{self.rest}".split())
        return text if len(text) <= 120 else f"{text[:117]}..."

    def flag(self, name: str) -> str | None:
        return next((value for known, value in self.flags if known == name), None)


@dataclass(frozen=True, slots=True)
class Source:
    """The instructions of a Dockerfile, and its escape character."""

    instructions: tuple[Instruction, ...]
    escape: str
    file: str


def read(text: str, *, file: str = "Dockerfile") -> Source:
    """Split a Dockerfile. Raises DockerfileError."""
    # Not `splitlines`: it also splits at characters that a Dockerfile may have within a line.
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    escape = _escape(lines, file=file)
    continued = re.compile(rf"(?:(?<=[^{re.escape(escape)}])|\A){re.escape(escape)}[ \t]*\Z")
    found: list[Instruction] = []
    index = 0
    while index < len(lines):
        if not lines[index].strip() or _is_comment(lines[index]):
            index += 1
            continue
        begin, parts, more = index + 1, list[str](), True
        while more and index < len(lines):
            line = lines[index]
            index += 1
            if parts and (not line.strip() or _is_comment(line)):
                continue
            whole = continued.sub("", line)
            more = whole != line
            if not parts and not whole.strip():
                begin = index + 1
                continue
            parts.append(whole if parts else whole.lstrip())
        logical = "".join(parts).strip()
        if not logical:
            continue
        instruction = _instruction(logical, line=begin, file=file)
        if instruction.keyword in _WITH_HEREDOCS:
            heredocs, index = _heredocs(instruction, lines, index, escape=escape, file=file)
            instruction = Instruction(
                instruction.keyword, instruction.rest, begin, instruction.flags, heredocs
            )
        found.append(instruction)
    return Source(tuple(found), escape, file)


def _escape(lines: list[str], *, file: str) -> str:
    """Return the escape character that a parser directive sets."""
    seen: set[str] = set()
    escape = "\\"
    for number, line in enumerate(lines, 1):
        match = _DIRECTIVE.match(line.strip())
        if match is None or match[1].lower() not in ("syntax", "escape", "check"):
            break
        name = match[1].lower()
        if name in seen:
            raise DockerfileError(
                f"the parser directive {name} is given twice: remove one", file=file, line=number
            )
        seen.add(name)
        if name == "escape":
            if match[2] not in ("\\", "`"):
                raise DockerfileError(
                    f"escape must be \\ or `, not {match[2][:20]!r}: correct the directive",
                    file=file,
                    line=number,
                )
            escape = match[2]
    return escape


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _instruction(text: str, *, line: int, file: str) -> Instruction:
    word, *others = text.split(None, 1)
    keyword, rest = word.upper(), others[0].strip() if others else ""
    if keyword not in KEYWORDS:
        raise DockerfileError(f"unknown instruction {word[:40]!r}: correct it", file=file, line=line)
    if not rest:
        raise DockerfileError("it has no argument: add one", file=file, line=line, instruction=keyword)
    flags: list[tuple[str, str]] = []
    while keyword in _WITH_FLAGS and (match := _FLAG.match(rest)):
        flags.append((match[1], match[2] or ""))
        rest = rest[match.end() :]
    return Instruction(keyword, rest, line, tuple(flags))


def _heredocs(
    instruction: Instruction, lines: list[str], index: int, *, escape: str, file: str
) -> tuple[tuple[Heredoc, ...], int]:
    """Return the heredocs that begin at a line, and the index of the line after them."""
    found: list[Heredoc] = []
    if instruction.rest.startswith("["):
        return (), index
    for word in heredoc_words(instruction.rest):
        match = _HEREDOC.match(word)
        assert match is not None
        marker = match[2]
        name = re.sub(r"""["'\\]""", "", marker)
        body: list[str] = []
        while True:
            if index >= len(lines):
                raise DockerfileError(
                    f"the heredoc {name[:40]!r} has no end: add a line with only {name[:40]}",
                    file=file,
                    line=instruction.line,
                    instruction=instruction.keyword,
                )
            line = lines[index]
            index += 1
            if (line.lstrip("\t") if match[1] else line) == name:
                break
            body.append(f"{line}\n")
        found.append(Heredoc(name, "".join(body), quoted=name != marker, strips_tabs=bool(match[1])))
    return tuple(found), index


def heredoc_words(rest: str) -> list[str]:
    """Return the words that begin heredocs, such as `<<-"END"`."""
    return [
        word for word in _WORD.findall(rest) if (match := _HEREDOC.match(word)) and match[2].strip("\"'\\")
    ]
