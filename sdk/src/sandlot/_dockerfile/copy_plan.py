"""What COPY and ADD do with their sources: which directories, files and links they make, and where."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandlot._dockerfile.context import Entry
from sandlot._dockerfile.source import Instruction
from sandlot._dockerfile.state import State
from sandlot._dockerfile.words import BadWord

_FLAGS = {"COPY": {"from", "chown", "chmod", "link"}, "ADD": {"chown", "chmod", "link"}}
_ARCHIVES = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")
_ZSTD = b"\x28\xb5\x2f\xfd"
# The kernel's own files: a sandbox mounts them, they are no part of an image, and reading them may never end.
KERNEL = frozenset(["/proc", "/sys", "/dev"])


@dataclass(frozen=True, slots=True)
class Order:
    """A COPY or ADD with its words expanded; `texts` are the files that its heredocs are."""

    sources: tuple[str, ...]
    target: str
    into: bool  # the target is a directory, whether it exists or not
    origin: str = ""
    user: str | None = None
    group: str | None = None
    mode: int | None = None
    texts: tuple[tuple[str, bytes], ...] = ()
    written: tuple[str, ...] = ()  # the sources without the values of variables, for errors
    unpacks: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """A source of an order: its name, what it is, and if it is a directory all that is below it."""

    name: str
    entry: Entry
    below: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to make at `target`; `top`: the order's own directory, which keeps its mode if it exists."""

    target: str
    entry: Entry
    top: bool = False


def order(instruction: Instruction, state: State) -> Order:
    """Read a COPY or ADD. Raises BadWord."""
    check_flags(instruction)
    words, written = state.words(instruction.rest), state.written(instruction.rest)
    texts: list[tuple[str, bytes]] = []
    sources: list[tuple[str, str]] = []
    heredocs = list(instruction.heredocs)
    for word, shown in zip(words[:-1], written[:-1], strict=True):
        if heredocs and "<<" in word:
            one = heredocs.pop(0)
            content = one.content()
            content = content if one.quoted else state.expand_text(content)
            texts.append((one.name, content.encode("utf-8", "surrogateescape")))
        else:
            check_local(word, shown)
            sources.append((word, shown))
    if len(words) < 2:
        raise BadWord("it needs at least one source and a target: add them")
    target = words[-1]
    into = target.endswith(("/", "/.")) or target in (".", "..")
    if len(words) > 2 and not into:
        raise BadWord(f"with several sources the target must be a directory: write {written[-1][:100]}/")
    user, group = _chown(instruction, state)
    return Order(
        tuple(word for word, _ in sources),
        state.path(target),
        into,
        origin=instruction.flag("from") or "",
        user=user,
        group=group,
        mode=_mode(instruction, state),
        texts=tuple(texts),
        written=tuple(shown for _, shown in sources),
        unpacks=instruction.keyword == "ADD",
    )


def check_flags(instruction: Instruction) -> None:
    """Check that the flags of a COPY or ADD can be replayed. Raises BadWord."""
    for name, value in instruction.flags:
        if name not in _FLAGS[instruction.keyword]:
            raise BadWord(f"the flag --{name[:40]} cannot be replayed: remove it")
        if name != "link" and not value:
            raise BadWord(f"the flag --{name} has no value: write --{name}=VALUE")


def check_local(source: str, written: str) -> None:
    """Check that a source is a file of the context; `written`: with its variables, for the error. Raises BadWord."""
    if "://" in source or source.startswith("git@"):
        raise BadWord(f"{written[:100]} cannot be added: fetch it with RUN")


def steps(wanted: Order, sources: Sequence[Source], *, is_dir: bool) -> list[Step]:
    """Return what to make, directories first. `is_dir`: whether the target is one already."""
    found: list[Step] = []
    root = wanted.target.rstrip("/")
    for source in sources:
        if source.entry.kind != "dir":
            into = wanted.into or is_dir or len(sources) + len(wanted.texts) > 1
            found.append(Step(f"{root}/{source.name}" if into else wanted.target, source.entry))
            continue
        found.append(Step(wanted.target, source.entry, top=True))
        skip = len(source.entry.path) + 1 if source.entry.path else 0
        found += [Step(f"{root}/{one.path[skip:]}", one) for one in source.below]
    return [step for step in found if step.entry.kind != "dir" or step.target not in KERNEL]


def replaced(wanted: Order, plan: Iterable[Step]) -> set[str]:
    """Return the files whose paths must be no links: a write follows one, as Docker does only for the target itself."""
    return {step.target for step in plan if step.entry.kind == "file"} - {wanted.target}


def is_archive(path: Path) -> bool:
    """Return whether ADD unpacks a file: a tar, plain or compressed. Raises BadWord."""
    with path.open("rb") as file:
        head = file.read(512)
    if head.startswith(_ZSTD):
        raise BadWord(
            f"{path.name[:100]} is compressed with zstd: use gzip, bzip2 or xz, or unpack it with RUN"
        )
    if not head.startswith(_ARCHIVES) and head[257:262] != b"ustar":
        return False
    try:
        with tarfile.open(path) as archive:
            archive.next()
    except (tarfile.TarError, EOFError, OSError):
        return False
    return True


def members(archive: Iterable[tarfile.TarInfo]) -> list[tuple[Entry, tarfile.TarInfo]]:
    """Return the files, directories and links of a tar. Raises BadWord for a name that leads out of it."""
    found: list[tuple[Entry, tarfile.TarInfo]] = []
    for one in archive:
        name = os.path.normpath(one.name)
        if name.startswith(("/", "../")) or name == "..":
            raise BadWord(
                f"the archive has the name {one.name[:100]!r}, which leads out of it: pack it again"
            )
        kind = "dir" if one.isdir() else "symlink" if one.issym() else "file"
        if name == "." or not (one.isdir() or one.issym() or one.isreg() or one.islnk()):
            continue
        owner = (one.uid, one.gid)
        entry = Entry(name, kind, one.mode & 0o7777, one.size, target=one.linkname, owner=owner)
        found.append((entry, one))
    return found


def owner(text: str) -> tuple[str, str | None]:
    """Return user and group of `USER` or `USER:GROUP`: a number without a group is both, a name has its own group."""
    user, _, group = text.partition(":")
    return user, group or (user if user.isdigit() else None)


def _chown(instruction: Instruction, state: State) -> tuple[str | None, str | None]:
    text = state.expand(instruction.flag("chown") or "")
    if not text:
        return None, None
    if text.startswith(":"):
        raise BadWord("--chown has no user: write --chown=USER or --chown=USER:GROUP")
    return owner(text)


def _mode(instruction: Instruction, state: State) -> int | None:
    written = instruction.flag("chmod") or ""
    text = state.expand(written)
    if not text:
        return None
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o7777:
        raise BadWord(f"--chmod={written[:40]} cannot be replayed: write an octal number such as 0755")
    return mode
