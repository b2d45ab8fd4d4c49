"""Adds pages and files from outside docs/ to the site, and rewrites links to them."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
# Link targets outside docs/ that pages may use. A link to any other file fails the strict build.
OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "charts/sandlot/README.md",
    "contract/src/sandlot_contract/python_driver.py",
    "images/holder.py",
    "proto/command_session.proto",
)
FOLDER = "repository"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
CODE = re.compile(r"`[^`]+`")
FENCE = re.compile(r"^\s*```")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    for name in OUTSIDE:
        files.append(File.generated(config, _in_site(name), abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    here = page.file.src_uri
    repository = here.removeprefix(f"{FOLDER}/") if here.startswith(f"{FOLDER}/") else f"docs/{here}"
    lines = []
    fenced = False
    for line in markdown.split("\n"):
        fenced ^= bool(FENCE.match(line))
        if not fenced:
            line = LINK.sub(lambda found: _link(found, repository, here), line)
            if line.startswith("|"):
                # GitHub needs an escape for a bar in a table cell's code; Python-Markdown would show the escape.
                line = CODE.sub(lambda found: found[0].replace("\\|", "|"), line)
        lines.append(line)
    return "\n".join(lines)


def _link(found: re.Match[str], repository: str, here: str) -> str:
    path, hash_, anchor = found[2].partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return found[0]
    target = posixpath.normpath(posixpath.join(posixpath.dirname(repository), path))
    if target.startswith("docs/"):
        target = target.removeprefix("docs/")
    elif target in OUTSIDE:
        target = _in_site(target)
    else:
        return found[0]
    return f"{found[1]}{posixpath.relpath(target, posixpath.dirname(here) or '.')}{hash_}{anchor}{found[3]}"


def _in_site(name: str) -> str:
    return f"{FOLDER}/{name}"
