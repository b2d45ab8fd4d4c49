"""Generates the chart's values.schema.json and README table from values.yaml and the CRDs; `--check` compares."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml
from chart_schema import schema
from chart_values import BadValues, Value, read

CHART = Path(__file__).resolve().parent.parent / "charts" / "sandlot"
BEGIN, END = "<!-- values: written by tools/chart_docs.py -->", "<!-- end of values -->"


def table(values: list[Value]) -> str:
    """Return a Markdown table with one row per setting."""
    rows = ["| value | default | description |", "|---|---|---|"]
    stack = list(reversed(values))
    while stack:
        value = stack.pop()
        if value.children:
            stack.extend(reversed(value.children))
            continue
        default = json.dumps(value.default, ensure_ascii=False)
        rows.append(
            f"| `{value.path}` | `{default}` | {value.text.replace('|', chr(92) + '|')}{_bounds(value)} |"
        )
    return "\n".join(rows)


def _bounds(value: Value) -> str:
    rules = value.rules
    if "enum" in rules:
        return f" One of {', '.join(f'`{word}`' for word in rules['enum'])}."
    least = rules.get("minimum", rules.get("exclusiveMinimum"))
    most = rules.get("maximum")
    if least is None:
        return ""
    if most is None:
        return f" {'At least' if 'minimum' in rules else 'More than'} {least}."
    return f" {least} to {most}."


def outputs(chart: Path) -> dict[Path, str]:
    """Return what the files should contain. Raises BadValues."""
    values = read(chart / "values.yaml")
    readme = chart / "README.md"
    before, begin, rest = readme.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BadValues(f"README.md lacks the markers of the table: add {BEGIN} and {END}")
    return {
        chart / "values.schema.json": json.dumps(
            schema(values, pool=_pool(chart)), indent=2, ensure_ascii=False
        )
        + "\n",
        readme: f"{before}{BEGIN}\n{table(values)}\n{END}{after}",
    }


def _pool(chart: Path) -> dict[str, Any]:
    """Return the schema of `pools`, from the CRD."""
    definition = yaml.safe_load((chart / "crds" / "sandboxpools.yaml").read_text())
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing, fail on drift")
    parser.add_argument("--chart", type=Path, default=CHART)
    args = parser.parse_args()
    try:
        wanted = outputs(args.chart)
    except BadValues as error:
        print(f"{args.chart / 'values.yaml'}: {error}", file=sys.stderr)
        return 1
    drifted = [path for path, text in wanted.items() if not path.is_file() or path.read_text() != text]
    for path in drifted:
        if args.check:
            print(f"{path.name} differs from values.yaml and the CRDs; run `make generate`", file=sys.stderr)
        else:
            path.write_text(wanted[path])
    return 1 if args.check and drifted else 0


if __name__ == "__main__":
    sys.exit(main())
