"""The mounts of a RUN instruction, as far as a sandbox can have them."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot._dockerfile.source import Instruction
from sandlot._dockerfile.words import BadWord

_SHARED = frozenset(["type", "target", "dst", "destination"])
_KEYS = {
    "bind": {*_SHARED, "source", "src", "from", "rw", "readwrite", "ro", "readonly"},
    "cache": {*_SHARED, "id", "sharing", "from", "source", "src", "mode", "uid", "gid", "ro", "readonly"},
    "tmpfs": {*_SHARED, "size"},
}


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount: `bind` has files of the context or of `origin` at `target`, the others an empty directory."""

    kind: str
    target: str
    source: str = "/"
    origin: str = ""
    mode: int = 0o755
    uid: int = 0
    gid: int = 0


def of(instruction: Instruction) -> list[Mount]:
    """Return the mounts of a RUN. Raises BadWord for those that cannot be replayed."""
    found: list[Mount] = []
    for name, value in instruction.flags:
        if name == "mount":
            found.append(_mount(value))
        elif (name, value) not in (("network", "default"), ("security", "sandbox")):
            raise BadWord(f"RUN --{name}={value} cannot be replayed: remove the flag")
    return found


def _mount(text: str) -> Mount:
    fields: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        fields[key.lower()] = value.strip("\"'")
    kind = fields.get("type", "bind")
    if kind not in _KEYS:
        raise BadWord(f"--mount=type={kind[:20]} cannot be replayed, only bind, cache and tmpfs: remove it")
    for key in fields:
        if key not in _KEYS[kind]:
            raise BadWord(f"--mount=type={kind} has the unknown option {key[:40]!r}: remove it")
    target = fields.get("target") or fields.get("dst") or fields.get("destination") or ""
    if not target:
        raise BadWord(f"--mount=type={kind} has no target: add target=PATH")
    try:
        return Mount(
            kind,
            target,
            source=fields.get("source") or fields.get("src") or "/",
            origin=fields.get("from", "") if kind == "bind" else "",
            mode=_number(fields.get("mode") or "755", base=8, most=0o7777),
            uid=_number(fields.get("uid") or "0"),
            gid=_number(fields.get("gid") or "0"),
        )
    except ValueError:
        raise BadWord(f"--mount=type={kind}: mode, uid and gid must be numbers: correct them") from None


def _number(text: str, *, base: int = 10, most: int = (1 << 32) - 2) -> int:
    number = int(text, base)
    if not 0 <= number <= most:
        raise ValueError(text)
    return number
