"""Generates docs/errors.md, a list of all error texts for users and operators; `--check` compares."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from error_texts import Found, collect, read

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "errors.md"
PACKAGES = {
    "contract": "contract/src/sandlot_contract",
    "gateway": "gateway/src/sandlot_gateway",
    "sidecar": "sidecar/src/sandlot_sidecar",
    "controller": "controller/src/sandlot_controller",
    "node": "node/src/sandlot_node",
    "kube": "kube/src/sandlot_kube",
    "sdk": "sdk/src/sandlot",
    "grade": "grade/src/sandlot_grade",
}
# Sections of the page by module prefix; the first match wins.
SURFACES = (
    ("Data plane", ("gateway data/", "gateway data_plane.py")),
    ("Command sessions (RPC)", ("gateway rpc/",)),
    ("SSH", ("gateway ssh/",)),
    ("Webhooks", ("gateway webhook",)),
    ("Control API, and the gateway's start", ("gateway ", "contract ")),
    ("Sidecar", ("sidecar ",)),
    ("Controller", ("controller ",)),
    ("Node agent", ("node ",)),
    ("Kubernetes client of gateway and controller", ("kube ",)),
    ("Command line", ("sdk cli/",)),
    ("SDK", ("sdk ",)),
    ("Grading", ("grade ",)),
)
HEAD = """# Every error text

*Reference, for users and operators who look up an error, and for reviewers. `tools/error_page.py` writes this page from the source.*

A text in braces stands for a value. The second column has the HTTP status, the code or the field that go with the text, where the source names them beside it. [Results and errors](results.md) says which exception of the SDK an answer becomes.
"""


def page(found: list[Found]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield HEAD
    for surface, _ in SURFACES:
        rows = [each for each in found if surface_of(each.module) == surface]
        yield f"## {surface}\n"
        yield "| text | status, code or field | raised or answered as | module |"
        yield "|---|---|---|---|"
        for each in rows:
            yield f"| {code(each.text)} | {each.answer} | `{each.kind}` | `{each.module}` |"
        yield ""


def surface_of(module: str) -> str:
    return next(surface for surface, prefixes in SURFACES if module.startswith(prefixes))


def code(text: str) -> str:
    escaped = text.replace("|", "\\|")
    return f"`` {escaped} ``" if "`" in escaped else f"`{escaped}`"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing, fail on drift")
    args = parser.parse_args()
    wanted = "\n".join(page(collect(read(ROOT, PACKAGES))))
    if PAGE.is_file() and PAGE.read_text() == wanted:
        return 0
    if args.check:
        print("docs/errors.md differs from the source; run `make generate`", file=sys.stderr)
        return 1
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
