"""A few programs in each language of SandboxFusion, from `fusion_languages/LANGUAGE.toml`, with what is expected of them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

DIRECTORY = Path(__file__).with_name("fusion_languages")


@dataclass(frozen=True, kw_only=True)
class Program:
    """`works` doubles a number of its input, and `in.txt` into `out.txt`; a test framework's only the file."""

    language: str
    compiled: bool  # has a compile_result
    works: str
    fails: str
    broken: str
    endless: str
    stdout: str = "42"  # a part of what `works` prints to `stream`
    stream: str = "stdout"
    code: int = 3  # return_code of `fails`
    partial: str = "begun"  # what `endless` has printed
    seconds: float = 3  # in which `endless` has begun


def programs() -> dict[str, Program]:
    """All, by language."""
    return {
        path.stem: Program(language=path.stem, **tomllib.loads(path.read_text()))
        for path in sorted(DIRECTORY.glob("*.toml"))
    }
