"""Generates the SDK's list of the fields in the chart's CustomResourceDefinitions; `--check` compares."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml
from sandlot.cli.cluster.checks.definitions import paths
from sandlot.cli.cluster.doc import Doc

ROOT = Path(__file__).resolve().parent.parent
CRDS = ROOT / "charts" / "sandlot" / "crds"
MODULE = ROOT / "sdk" / "src" / "sandlot" / "cli" / "cluster" / "fields.py"
HEAD = '''"""The fields of this release's CustomResourceDefinitions. Do not edit: `tools/definition_fields.py` writes this."""

from __future__ import annotations

FIELDS: dict[str, tuple[str, ...]] = {'''


def module() -> Iterator[str]:
    """Yield the lines of the module."""
    yield HEAD
    for file in sorted(CRDS.glob("*.yaml")):
        definition = Doc(yaml.safe_load(file.read_text()))
        yield f'    "{definition.name}": ('
        for version in definition.docs("spec", "versions"):
            yield from (f'        "{path}",' for path in paths(version.doc("schema", "openAPIV3Schema")))
        yield "    ),"
    yield "}"
    yield ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing, fail on drift")
    args = parser.parse_args()
    wanted = "\n".join(module())
    if MODULE.is_file() and MODULE.read_text() == wanted:
        return 0
    if args.check:
        print(f"{MODULE.relative_to(ROOT)} differs from the chart; run `make generate`", file=sys.stderr)
        return 1
    MODULE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
