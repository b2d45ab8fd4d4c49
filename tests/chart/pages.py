"""The guides as data: their YAML, their files and their commands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from tests.chart.render import ROOT

PAGES = (
    "docs/install.md",
    "docs/configure.md",
    "docs/ingress.md",
    "docs/keys.md",
    "docs/gvisor.md",
    "docs/images.md",
    "docs/upgrade.md",
    "docs/metrics.md",
    "charts/sandlot/README.md",
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Fence:
    """What stands between two lines of backquotes."""

    page: str
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """Its first line is a comment with the name under which the page's commands use it."""
        found = re.match(r"# (\S+\.yaml)\n", self.text)
        return found[1] if found else None

    @property
    def document(self) -> dict[str, Any]:
        return yaml.safe_load(self.text)

    @property
    def is_resource(self) -> bool:
        return "apiVersion" in self.document


def fences(page: str, language: str) -> list[Fence]:
    text = (ROOT / page).read_text()
    found = [
        Fence(page, text.count("\n", 0, match.start()) + 2, match[1], match[2])
        for match in _FENCE.finditer(text)
    ]
    return [fence for fence in found if fence.language == language]


def all_yaml() -> list[Fence]:
    return [fence for page in PAGES for fence in fences(page, "yaml")]


def files() -> dict[str, str]:
    """By name; where two pages show one file they agree."""
    found: dict[str, str] = {}
    for fence in all_yaml():
        if fence.file is not None:
            assert found.setdefault(fence.file, fence.text) == fence.text, fence.name
    return found


def commands(page: str) -> str:
    return "\n".join(fence.text for fence in fences(page, "sh"))
