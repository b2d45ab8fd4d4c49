"""Checks the CustomResourceDefinitions: served, and with the fields that this release writes."""

from __future__ import annotations

from collections.abc import Iterator

from ..doc import Doc
from ..fields import FIELDS
from ..finding import Finding, ok, problem
from ..world import Kind, World
from .words import several

VERSION = "v1alpha1"
_APPLY = "apply the definitions of this release: kubectl apply --server-side --force-conflicts -f charts/sandlot/crds"


def check(world: World) -> Iterator[Finding]:
    found = {one.name: one for one in world.list(Kind.DEFINITIONS)}
    for name, fields in FIELDS.items():
        label = f"definition {name}"
        if (definition := found.get(name)) is None:
            yield problem(label, "it does not exist", _APPLY)
            continue
        version = next(
            (one for one in definition.docs("spec", "versions") if one.text("name") == VERSION), Doc({})
        )
        if version.value("served") is not True:
            yield problem(label, f"it does not serve {VERSION}", _APPLY)
            continue
        established = definition.condition("Established")
        if established.text("status") != "True":
            refused = definition.condition("NamesAccepted").text("message") or established.text("message")
            yield problem(label, f"the API server does not serve it: {refused or 'not established'}", _APPLY)
            continue
        have = set(paths(version.doc("schema", "openAPIV3Schema")))
        lacking = [field for field in fields if field not in have]
        if lacking:
            detail = f"it is of another release, and the API server drops {', '.join(several(lacking))}"
            yield problem(label, detail, _APPLY)
        else:
            yield ok(label, f"{VERSION} is served, with the fields of this release")


def paths(schema: Doc, prefix: str = "") -> Iterator[str]:
    """Yield the path of each field in a schema, without those of every object's metadata."""
    for name, raw in schema.doc("properties").raw.items():
        inner = Doc(raw)
        yield f"{prefix}{name}"
        yield from paths(inner, f"{prefix}{name}.")
        yield from paths(inner.doc("items"), f"{prefix}{name}.")
