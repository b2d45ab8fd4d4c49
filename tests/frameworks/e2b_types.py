"""The public methods of E2B's JavaScript SDKs, from their type declarations."""

from __future__ import annotations

import re
from pathlib import Path

# The class or interface of each name that docs/e2b-methods.md has.
CLASSES = {
    "Sandbox": "Sandbox",
    "commands": "Commands",
    "handle": "CommandHandle",
    "files": "Filesystem",
    "watch": "WatchHandle",
    "pty": "Pty",
    "git": "Git",
    "SandboxPaginator": "SandboxPaginator",
    "SnapshotPaginator": "SnapshotPaginator",
    "SecretPaginator": "SecretPaginator",
    "builder": "TemplateBuilder",
    "ReadyCmd": "ReadyCmd",
    "Volume": "Volume",
    "Secret": "Secret",
}
# What the SDK is made of and its users do not call: settings of connections, and lines of a log.
PARTS = {"ApiClient", "ConnectionConfig", "LogEntry", "LogEntryEnd", "LogEntryStart", "TemplateBase"}
CELLS = ("Execution", "ExecutionError", "Result")  # of the code interpreter
# Without a class: the SDK gives plain objects, which lack the declared `toString`.
CELL_TYPES = {"OutputMessage"}
_DECLARED = re.compile(
    r"^(?:declare (?:abstract )?class|interface) (\w+)(?:<.*?>)?(?: extends (\w+))?[^\n]*\{\n(.*?)^\}",
    re.M | re.S,
)
_METHOD = re.compile(
    r"^  (static )?(?:abstract )?(?!private|protected|constructor|get |set )(\w+)(?:<[^\n]*?>)?\(", re.M
)


def javascript_surface(modules: Path) -> set[str]:
    """All names. Raises AssertionError for an exported class or function that the lists above lack."""
    text = (modules / "e2b" / "dist" / "index.d.ts").read_text()
    declared = {found[1]: (found[2], found[3]) for found in _DECLARED.finditer(text)}
    functions = set(re.findall(r"^declare function (\w+)", text, re.M))

    def methods(name: str, *, static: bool | None = None) -> set[str]:
        base, body = declared[name]
        own = {method for kind, method in _METHOD.findall(body) if static in (None, bool(kind))}
        return own | (methods(base, static=static) if base in declared else set())

    (exports,) = re.findall(r"^export \{ (.*) \};", text, re.M)
    values = {each for each in exports.split(", ") if not each.startswith("type ") and " as " not in each}
    found = {f"{name}.{method}" for name, kind in CLASSES.items() for method in methods(kind)}
    template = methods("TemplateFromImage") | methods("TemplateBase", static=True)
    found |= {f"Template.{method}" for method in template} | (functions & values) | {"E2B"}
    for name in values & declared.keys():
        errors = name.endswith("Error")
        assert errors or name in {*CLASSES.values(), *PARTS, "E2B"}, name
    interpreter = (modules / "@e2b" / "code-interpreter" / "dist" / "index.d.ts").read_text()
    of_interpreter = {each[1]: each[3] for each in _DECLARED.finditer(interpreter)}
    assert {name for name in of_interpreter if not name.endswith("Opts")} == {
        *("Sandbox", "E2B"),
        *CELLS,
        *CELL_TYPES,
    }
    cells = ("Sandbox", *CELLS)
    return found | {f"{name}.{each}" for name in cells for _, each in _METHOD.findall(of_interpreter[name])}
