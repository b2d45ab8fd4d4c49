"""Typed access to the API server's JSON: absent fields and fields of another type read as empty."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Doc:
    """A JSON object."""

    raw: Mapping[str, Any]

    def value(self, *path: str) -> object:
        found: object = self.raw
        for name in path:
            if not isinstance(found, dict):
                return None
            found = cast(dict[str, object], found).get(name)
        return found

    def text(self, *path: str) -> str:
        found = self.value(*path)
        return "" if found is None or isinstance(found, dict | list) else str(found)

    def number(self, *path: str) -> int:
        found = self.value(*path)
        return int(found) if isinstance(found, int | float) else 0

    def doc(self, *path: str) -> Doc:
        found = self.value(*path)
        return Doc(cast(dict[str, Any], found) if isinstance(found, dict) else {})

    def docs(self, *path: str) -> list[Doc]:
        found = self.value(*path)
        items = cast(list[object], found) if isinstance(found, list) else []
        return [Doc(cast(dict[str, Any], item)) for item in items if isinstance(item, dict)]

    def texts(self, *path: str) -> list[str]:
        found = self.value(*path)
        return [str(item) for item in cast(list[object], found)] if isinstance(found, list) else []

    def pairs(self, *path: str) -> dict[str, str]:
        return {name: str(value) for name, value in self.doc(*path).raw.items()}

    @property
    def name(self) -> str:
        return self.text("metadata", "name")

    @property
    def namespace(self) -> str:
        return self.text("metadata", "namespace")

    @property
    def labels(self) -> dict[str, str]:
        return self.pairs("metadata", "labels")

    @property
    def component(self) -> str:
        return self.labels.get("app.kubernetes.io/component", "")

    def condition(self, kind: str) -> Doc:
        """Return the status condition of this type, or an empty object."""
        return next((one for one in self.docs("status", "conditions") if one.text("type") == kind), Doc({}))


def environment(workload: Doc) -> dict[str, str]:
    """Return the variables of a Deployment's first container that have a value in its template."""
    containers = workload.docs("spec", "template", "spec", "containers")
    return {one.text("name"): one.text("value") for one in (containers[0].docs("env") if containers else [])}


def json_of(text: str, default: Any) -> Any:
    """Parse a setting that is JSON in its variable; anything else is the default."""
    try:
        return json.loads(text)
    except ValueError:
        return default


def walk(value: object) -> Iterator[dict[str, Any]]:
    """Yield each object in a JSON value, the outer ones first."""
    if isinstance(value, dict):
        here = cast(dict[str, Any], value)
        yield here
        for inner in list(here.values()):
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in cast(list[object], value):
            yield from walk(inner)
