"""The body that starts a build: which steps there are, and what of it cannot be done here, without I/O."""

from __future__ import annotations

import hashlib
import posixpath
import re
from typing import Any

import msgspec

from ..failures import Problem
from .names import is_files_hash

_MOST_STEPS = 500
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MODE = re.compile(r"[0-7]{3,4}\Z")
_GLOB = re.compile(r"[*?\[{]")
_ERRORS = {
    "docker_image": "fromImage",
    "checkpoint_id": "fromTemplate",
    "pool": "fromTemplate",
    "cpu_cores": "cpuCount",
    "memory_gb": "memoryMB",
}
_FIELD = re.compile(r"^(" + "|".join(_ERRORS) + r")\b")
_ARGS = {"RUN": (1, 2), "COPY": (2, 4), "ENV": (2, 1000), "WORKDIR": (1, 1), "USER": (1, 2)}


class Step(msgspec.Struct, rename="camel"):
    type: str
    args: list[str] | None = None
    files_hash: str | None = None
    force: bool | None = None

    @property
    def words(self) -> list[str]:
        return self.args or []

    @property
    def short(self) -> str:
        """The step as its log shows it."""
        return " ".join([self.type, *filter(None, self.words)]).replace("\n", " ")[:200]


class Start(msgspec.Struct, rename="camel"):
    from_image: str | None = None
    from_template: str | None = None
    from_image_registry: Any = None
    force: bool | None = None
    steps: list[Step] | None = None
    start_cmd: str | None = None
    ready_cmd: str | None = None

    @property
    def forced(self) -> bool:
        return bool(self.force) or any(step.force for step in self.steps or ())

    def digest(self, *sizes: float | None) -> str:
        """Return what two builds share that have the same result, as far as their requests tell."""
        steps = [(step.type, step.words, step.files_hash) for step in self.steps or ()]
        parts = [self.from_image, self.from_template, steps, self.start_cmd, self.ready_cmd, sizes]
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


class Copy(msgspec.Struct):
    """A COPY: `source` is a path in the archive, without what a pattern begins with."""

    source: str
    target: str
    owner: str | None
    mode: str | None


def check(start: Start) -> None:
    """Check a build's request. Raises Problem, which names the field."""
    if start.from_image_registry is not None:
        raise Problem(
            400,
            "fromImageRegistry: credentials are not taken here: the operator configures those of registries",
        )
    if bool(start.from_image) == bool(start.from_template):
        raise Problem(400, "fromImage: give either this or fromTemplate")
    steps = start.steps or []
    if len(steps) > _MOST_STEPS:
        raise Problem(400, f"steps: there are {len(steps)}, the limit is {_MOST_STEPS}: join some")
    for number, step in enumerate(steps):
        try:
            _check(step)
        except ValueError as error:
            raise Problem(400, f"steps.{number}.{error}") from error
    for field, text in (("startCmd", start.start_cmd), ("readyCmd", start.ready_cmd)):
        if text is not None and ("\0" in text or len(text) > 8192):
            raise Problem(400, f"{field}: must have at most 8,192 characters, and no NUL: write a script")


def _check(step: Step) -> None:
    """Raise ValueError, whose text begins with the field."""
    step.type = step.type.upper()
    if step.type not in _ARGS:
        raise ValueError(f"type: {step.type[:50]!r} is not supported: use {', '.join(_ARGS)}")
    fewest, most = _ARGS[step.type]
    words = step.words
    if not fewest <= len(words) <= most:
        raise ValueError(f"args: {step.type} has {fewest} to {most}, not {len(words)}")
    if any("\0" in word for word in words):
        raise ValueError("args: must have no NUL characters")
    if step.type == "ENV":
        if len(words) % 2:
            raise ValueError("args: must be names and values in turn")
        if bad := next((name for name in words[::2] if not _NAME.match(name)), None):
            raise ValueError(f"args: {bad[:80]!r} is not a valid variable name")
    elif step.type == "USER" and len(words) > 1 and words[1] not in ("", "false"):
        raise ValueError("args: sudo is not set up here: add the user to sudoers by a RUN")
    elif step.type == "COPY":
        copy_of(step)
        if step.files_hash is None or not is_files_hash(step.files_hash):
            raise ValueError(
                "filesHash: must be the 64 hexadecimal digits under which the files were uploaded"
            )


def copy_of(step: Step) -> Copy:
    """Return what a COPY step means. Raises ValueError."""
    source, target, owner, mode = (*step.words, "", "")[:4]
    # As with E2B, a pattern copies the directory that it begins with: the archive has only what matches.
    parts: list[str] = []
    for part in source.split("/"):
        if _GLOB.search(part):
            break
        parts.append(part)
    path = posixpath.normpath("/".join(parts) or ".")
    if path == ".." or path.startswith(("/", "../")):
        raise ValueError(f"args: the source {source[:100]!r} must be below the directory of the files")
    if not target:
        raise ValueError("args: COPY needs a destination")
    if mode and not _MODE.match(mode):
        raise ValueError(f"args: the mode {mode[:20]!r} must be octal, such as 0755")
    return Copy(path, target, owner or None, mode or None)


def in_their_words(text: str) -> str:
    """Name the field of a create of ours as the sender of a build wrote it."""
    return _FIELD.sub(lambda found: _ERRORS[found[1]], text)
