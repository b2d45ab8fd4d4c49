"""Writes a release's bill of materials (CycloneDX): packages with their locked dependencies, images with their contents."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.utils import parse_wheel_filename

from images.build import base_layer
from images.contents import DEBIAN, IMAGES, Image
from images.oci import file_digest
from images.requirements import closure, distribution_name, graph, pinned_extras, versions, wanted
from release.debian import Package, installed
from release.version import of_python

_OURS = "sandlot"


@dataclass
class _Bill:
    """Components by their reference, and what each contains or requires."""

    components: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    needs: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def add(self, component: dict[str, Any], needs: Iterable[str] = ()) -> str:
        reference = component["purl"]
        self.components[reference] = {"bom-ref": reference, **component}
        self.needs.setdefault(reference, set()).update(needs)
        return reference


def _purl(kind: str, name: str, version: str, **qualifiers: str) -> str:
    words = "&".join(f"{key}={quote(value, safe='/')}" for key, value in sorted(qualifiers.items()))
    return f"pkg:{kind}/{quote(name)}@{quote(version, safe='')}" + (f"?{words}" if words else "")


def _sha256(digest: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}]


def _python(bill: _Bill, wheels: Iterable[Path], *, version: str) -> dict[str, str]:
    """Add our packages and all that they require with every pinned extra; return the references by name."""
    ours = {str(parse_wheel_filename(wheel.name)[0]): wheel for wheel in wheels}
    edges = graph(f"{name}[{','.join(pinned_extras(name))}]" for name in ours)
    pins = versions(set(edges) - set(ours)) | dict.fromkeys(ours, of_python(version))
    references = {name: _purl("pypi", name, pins[name]) for name in edges}
    for name, needed in edges.items():
        component: dict[str, Any] = {
            "type": "library",
            "name": name,
            "version": pins[name],
            "purl": references[name],
        }
        if name in ours:
            component["hashes"] = _sha256(file_digest(ours[name]))
            component["licenses"] = [{"license": {"id": "Apache-2.0"}}]
        bill.add(component, (references[each] for each in needed))
    return references


def _debian(bill: _Bill, package: Package) -> str:
    purl = _purl(
        "deb/debian", package.name, package.version, arch=package.architecture, distro=f"debian-{DEBIAN}"
    )
    return bill.add({"type": "library", "name": package.name, "version": package.version, "purl": purl})


def _image(bill: _Bill, image: Image, *, digest: str, version: str, python: Mapping[str, str]) -> str:
    parts = [_debian(bill, package) for package in installed(base_layer(image.debian))]
    if image.packages:
        names = {*closure(wanted(image)), *map(distribution_name, image.packages)}
        parts += [python[name] for name in names]
    component = {
        "type": "container",
        "name": image.name,
        "version": version,
        "description": image.title,
        "purl": _purl("oci", image.name, digest, tag=version),
        "hashes": _sha256(digest),
    }
    return bill.add(component, parts)


def document(
    *, version: str, wheels: Iterable[Path], digests: Mapping[str, str], epoch: int
) -> dict[str, Any]:
    """Return the bill; `digests` are those of the images' manifests, by name."""
    bill = _Bill()
    python = _python(bill, wheels, version=version)
    whole = [reference for name, reference in python.items() if name.startswith(_OURS)]
    whole += [
        _image(bill, image, digest=digests[image.name], version=version, python=python) for image in IMAGES
    ]
    dependencies = {_OURS: set(whole), **bill.needs}
    root = {"bom-ref": _OURS, "type": "application", "name": _OURS, "version": version}
    made: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": root,
        },
        "components": [bill.components[reference] for reference in sorted(bill.components)],
        "dependencies": [
            {"ref": reference, "dependsOn": sorted(dependencies[reference])}
            for reference in sorted(dependencies)
        ],
    }
    # Of the contents, so that a second build has the same.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(made, sort_keys=True))
    return {**made, "serialNumber": f"urn:uuid:{number}"}


def write(out: Path, **parts: Any) -> None:
    """Write the bill; the arguments are those of `document`."""
    out.write_text(json.dumps(document(**parts), indent=1, sort_keys=True) + "\n")
