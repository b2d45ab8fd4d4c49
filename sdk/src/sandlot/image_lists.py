"""Reads the images of a data set: plain lists, JSON lines, and folders of tasks in harbor's or SWE-bench's format."""

from __future__ import annotations

import json
import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

COLUMNS = ("image_name", "docker_image", "image")  # the first one that a row has
_TASK = "task.toml"
_ROWS = (".jsonl", ".ndjson")


class BadImageList(ValueError):
    """A file that names no images as it should; the message has the file, the line and the field."""


@dataclass(frozen=True, slots=True)
class ImageList:
    """How often each image occurs; `without_image` names tasks that would have to be built from a Dockerfile."""

    counts: Mapping[str, int]
    without_image: tuple[str, ...] = field(default=())


def read(path: str | os.PathLike[str], *, column: str | None = None) -> ImageList:
    """Read a file or a folder; its name says which format it has. Raises BadImageList, OSError.

    `column`: the field of a row that has the image, with dots for objects in it; default: the first of COLUMNS.
    """
    where = Path(path)
    if where.is_dir():
        return _folder(where, column=column)
    return ImageList(_file(where, column=column))


def parse_lines(text: str, *, name: str) -> Counter[str]:
    """Return the images of a plain list: one a line; empty lines and those that begin with # do not count."""
    counts: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        image = line.strip()
        if not image or image.startswith("#"):
            continue
        if len(image.split()) > 1:
            raise BadImageList(
                f"{name}:{number}: one image a line, not {image[:200]!r}: write the others below"
            )
        counts[image] += 1
    return counts


def parse_rows(text: str, *, name: str, column: str | None = None) -> Counter[str]:
    """Return the images of JSON lines, or of one JSON array of rows."""
    counts: Counter[str] = Counter()
    for place, row in _rows(text, name=name):
        counts[_image_of(row, place=place, column=column)] += 1
    return counts


def parse_task(text: str, *, name: str) -> str | None:
    """Return `docker_image` of the table `environment` in harbor's task.toml; None if it has none."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadImageList(f"{name}: not TOML: {error}; correct it") from error
    environment = document.get("environment", {})
    if not isinstance(environment, dict):
        raise BadImageList(f"{name}: environment: must be a table, not {_kind(environment)}")
    image = cast("dict[str, Any]", environment).get("docker_image")
    if image is None:
        return None
    return _checked(image, place=name, column="environment.docker_image")


def _folder(folder: Path, *, column: str | None) -> ImageList:
    tasks = sorted(folder.rglob(_TASK))
    if tasks:
        return _tasks(tasks)
    counts: Counter[str] = Counter()
    files = sorted(path for path in folder.iterdir() if path.suffix in (*_ROWS, ".json") and path.is_file())
    for path in files:
        counts.update(_file(path, column=column))
    if not counts:
        raise BadImageList(
            f"{folder}: no {_TASK} in it or below it, and no .jsonl or .json file in it with rows: "
            "name a folder of tasks, or a file"
        )
    return ImageList(counts)


def _tasks(files: Iterable[Path]) -> ImageList:
    counts: Counter[str] = Counter()
    without: list[str] = []
    for path in files:
        image = parse_task(_text(path), name=str(path))
        if image is not None:
            counts[image] += 1
        elif (path.parent / "environment" / "Dockerfile").is_file():
            without.append(str(path.parent))
        else:
            raise BadImageList(
                f"{path}: environment.docker_image: missing, and there is no environment/Dockerfile: name an image"
            )
    if not counts:
        raise BadImageList(
            f"{without[0]}: none of the {len(without)} tasks has environment.docker_image: build their "
            "Dockerfiles, push the images and name them there"
        )
    return ImageList(counts, tuple(without))


def _file(path: Path, *, column: str | None) -> Counter[str]:
    text = _text(path)
    if path.suffix in (*_ROWS, ".json") or column is not None or text.lstrip()[:1] in ("{", "["):
        counts = parse_rows(text, name=str(path), column=column)
    else:
        counts = parse_lines(text, name=str(path))
    if not counts:
        raise BadImageList(f"{path}: no image in it: write one a line, or name another file")
    return counts


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadImageList(f"{path}: not UTF-8 at byte {error.start}: name a text file") from error


def _rows(text: str, *, name: str) -> Iterable[tuple[str, object]]:
    """Yield each row with its place for messages."""
    if text.lstrip()[:1] == "[":
        try:
            rows: list[object] = json.loads(text)
        except ValueError as error:
            raise BadImageList(f"{name}: not JSON: {error}; correct it") from error
        for number, row in enumerate(rows, 1):
            yield f"{name}: row {number}", row
        return
    # Not splitlines, which also splits at characters that JSON allows in strings.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise BadImageList(f"{name}:{number}: not JSON: {error}; write one object a line") from error
        yield f"{name}:{number}", row


def _image_of(row: object, *, place: str, column: str | None) -> str:
    if not isinstance(row, dict):
        raise BadImageList(f"{place}: a row must be an object, not {_kind(row)}")
    fields = cast("dict[str, object]", row)
    if column is not None:
        return _checked(_nested(fields, column, place=place), place=place, column=column)
    for one in COLUMNS:
        if fields.get(one) is not None:
            return _checked(fields[one], place=place, column=one)
    if (swe_bench := _swe_bench(fields)) is not None:
        return swe_bench
    raise BadImageList(
        f"{place}: no field {', '.join(COLUMNS[:-1])} or {COLUMNS[-1]}: name the one that has the image (--column)"
    )


def _nested(row: dict[str, object], column: str, *, place: str) -> object:
    if column in row:
        return row[column]
    inner: dict[str, object] = row
    *outer, last = column.split(".")
    for part in outer:
        found = inner.get(part)
        inner = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    if last not in inner:
        raise BadImageList(f"{place}: no field {column}; the row has {', '.join(list(row)[:20]) or 'none'}")
    return inner[last]


def _swe_bench(row: dict[str, object]) -> str | None:
    """Return the image that SWE-bench publishes for an instance, whose row does not name it."""
    instance = row.get("instance_id")
    if isinstance(instance, str) and instance and "base_commit" in row:
        return f"swebench/sweb.eval.x86_64.{instance.lower().replace('__', '_1776_')}:latest"
    return None


def _checked(image: object, *, place: str, column: str) -> str:
    if not isinstance(image, str):
        raise BadImageList(f"{place}: {column}: must be a string, not {_kind(image)}")
    if not image.strip() or len(image.split()) > 1:
        raise BadImageList(f"{place}: {column}: must be the name of an image, not {image[:200]!r}")
    return image.strip()


def _kind(value: object) -> str:
    kinds = {
        "NoneType": "null",
        "dict": "an object",
        "list": "a list",
        "str": "a string",
        "bool": "a boolean",
    }
    return kinds.get(type(value).__name__, "a number" if isinstance(value, int | float) else "another value")
