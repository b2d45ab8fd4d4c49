"""Joins the program of Python contexts, one text that clients send, from the files of contract/python_driver.

It goes to the contract, for the gateway, and to the SDK, which imports nothing. `--check` writes nothing and fails if
one of them differs.
"""

from __future__ import annotations

import argparse
import ast
import sys
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent

ROOT = Path(__file__).resolve().parent.parent
PARTS = ROOT / "contract" / "python_driver"
ORDER = ("protocol", "processes", "displays", "kernel", "child", "cells", "supervisor")  # then program.py
JOINED = "contract/src/sandlot_contract/python_driver.py"
COPY = "sdk/src/sandlot/_protocol/python_driver.py"
NOTE = "# tools/python_driver.py joins this file from contract/python_driver: do not change it.\n\n"
HEADER = f"# This file is a copy of {JOINED} by tools/python_driver.py: do not change it.\n"


@dataclass
class Imports:
    """Imports of all parts, without those of parts."""

    modules: set[str] = field(default_factory=set[str])
    names: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def add(self, node: ast.Import | ast.ImportFrom) -> None:
        if any(alias.asname for alias in node.names) or getattr(node, "module", "") is None:
            raise SystemExit(
                f"`{ast.unparse(node)}`: parts are joined, so import names from modules as they are"
            )
        names = {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            self.modules |= names
        elif node.module is not None and not node.level and node.module != "__future__":
            self.names.setdefault(node.module, set()).update(names)

    def text(self) -> str:
        lines = [f"import {name}\n" for name in sorted(self.modules)]
        for module, names in sorted(self.names.items()):
            ordered = sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
            lines.append(f"from {module} import {', '.join(ordered)}\n")
        return "".join(lines)


def joined() -> str:
    """Return the program: the head of program.py, all imports, the other parts, the rest of program.py."""
    if unknown := {path.stem for path in PARTS.glob("*.py")} ^ {*ORDER, "program"}:
        raise SystemExit(
            f"ORDER in tools/python_driver.py and {PARTS} differ by: {', '.join(sorted(unknown))}"
        )
    head, rest = _program((PARTS / "program.py").read_text())
    imports, for_types = Imports(), Imports()
    types: list[str] = []
    bodies: list[str] = []
    for name in ORDER:
        text = (PARTS / f"{name}.py").read_text()
        tree = ast.parse(text)
        end = 0  # of the last line before the part's own code
        for node in tree.body[1:]:
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports.add(node)
            elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                for each in node.body:
                    if isinstance(each, ast.Import | ast.ImportFrom):
                        for_types.add(each)
                    else:
                        types.append(ast.unparse(each) + "\n")
            else:
                break
            end = node.end_lineno or 0
        about = ast.get_docstring(tree) or ""
        own = "\n".join(text.splitlines()[end:]).strip()
        bodies.append(f"{indent(about, '# ')}\n\n\n{own}\n")
    imports.modules.discard("sys")  # the head imports it
    typed = indent(f"{for_types.text()}\n{''.join(types)}", "    ")
    return "\n\n".join([f"{head}{imports.text()}\nif TYPE_CHECKING:\n{typed}", *bodies, rest])


def _program(text: str) -> tuple[str, str]:
    """Return what is before and after the imports of other parts."""
    lines = text.splitlines(keepends=True)
    ours = [number for number, line in enumerate(lines) if line.startswith("from .")]
    head = "".join(lines[: ours[0]]).replace("\nfrom __future__", f"\n{NOTE}from __future__", 1)
    return head, "".join(lines[ours[-1] + 1 :]).lstrip("\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    text = joined()
    differ = 0
    for name, wanted in ((JOINED, text), (COPY, HEADER + text)):
        file = ROOT / name
        if file.is_file() and file.read_text() == wanted:
            continue
        if check:
            print(f"{name}: differs from contract/python_driver; run `make generate`")
            differ += 1
        else:
            file.write_text(wanted)
            print(name)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
