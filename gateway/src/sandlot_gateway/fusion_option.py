"""Parses the setting that says where SandboxFusion's languages run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

# Those that SandboxFusion's server accepts.
Language = Literal[
    "python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript", "sql", "rust", "cuda",
    "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit", "kotlin_script", "jest", "verilog",
    "python_gpu", "lean", "swift", "racket",
]  # fmt: skip
LANGUAGES: tuple[str, ...] = get_args(Language)


@dataclass(frozen=True, slots=True)
class Place:
    """Where code runs: in sandboxes of an image, or of a warm pool."""

    image: str | None = None
    pool: str | None = None

    def __str__(self) -> str:
        return f"the pool {self.pool!r}" if self.pool is not None else f"the image {self.image!r}"


def parse_places(entries: Iterable[str]) -> dict[str | None, Place]:
    """Parse `[LANGUAGE=]IMAGE` and `[LANGUAGE=]@POOL`; None is the key of an entry for all others. Raises ValueError."""
    found: dict[str | None, Place] = {}
    for entry in entries:
        before, equals, rest = entry.rpartition("=")
        language = before if equals else None
        if language is not None and language not in LANGUAGES:
            raise ValueError(f"{entry!r}: {language!r} is no language of SandboxFusion")
        if not rest.removeprefix("@"):
            raise ValueError(f"{entry!r} must be IMAGE, @POOL, LANGUAGE=IMAGE or LANGUAGE=@POOL")
        if language in found:
            raise ValueError(f"{entry!r}: there is an entry for {language or 'all other languages'} already")
        found[language] = Place(pool=rest[1:]) if rest.startswith("@") else Place(image=rest)
    return found
