"""Generates the synchronous SDK and its tests from the asynchronous source.

It edits tokens, so that comments and layout survive. `--check` writes nothing and fails if a generated file differs
from its source, has no source, or if a rule below is unused.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAIRS = [("sdk/src/sandlot/_async", "sdk/src/sandlot/_sync"), ("tests/sdk/_async", "tests/sdk/_sync")]
HEADER = "# This file is auto-generated from {source} by tools/async_to_sync.py: do not change it.\n"

NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "StopAsyncIteration": "StopIteration",
    "aclose": "close",
    "_async": "_sync",
    "_transport_async": "_transport_sync",
    "_tasks_async": "_tasks_sync",
}
DROPPED = {"async", "await"}
UNWRAPPED = {"Awaitable"}  # Awaitable[X] becomes X
TEXTS = {
    r"\basync (?=with|for)": "",
    r"\basynchronous\b": "synchronous",
    r"\baclose\b": "close",
}
PREFIX = re.compile(r"\bAsync(?=[A-Z])")
STRINGS = {
    tokenize.STRING,
    tokenize.COMMENT,
    *(getattr(tokenize, n) for n in ("FSTRING_MIDDLE",) if hasattr(tokenize, n)),
}

used: set[str] = set()


def convert_name(name: str) -> str:
    if name in NAMES:
        used.add(name)
        return NAMES[name]
    if PREFIX.match(name):
        used.add(PREFIX.pattern)
        return PREFIX.sub("", name)
    return name


def convert_text(text: str) -> str:
    for pattern, replacement in TEXTS.items():
        text, count = re.subn(pattern, replacement, text)
        if count:
            used.add(pattern)
    return PREFIX.sub("", text)


def convert(source: str) -> str:
    """Return the synchronous text of one file."""
    lines = source.splitlines(keepends=True)
    edits: list[tuple[tuple[int, int], tuple[int, int], str]] = []
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    closing: list[int] = []  # bracket depths at which an unwrapped type ends
    depth = 0
    for index, token in enumerate(tokens):
        if token.type == tokenize.OP and token.string in "([{":
            depth += 1
        elif token.type == tokenize.OP and token.string in ")]}":
            if closing and closing[-1] == depth:
                closing.pop()
                edits.append((token.start, token.end, ""))
            depth -= 1
        elif token.type == tokenize.NAME and token.string in DROPPED:
            used.add(token.string)
            edits.append((token.start, tokens[index + 1].start, ""))
        elif token.type == tokenize.NAME and token.string in UNWRAPPED:
            used.add(token.string)
            following = tokens[index + 1]
            if following.string == "[":
                edits.append((token.start, following.end, ""))
                closing.append(depth + 1)
            elif following.string == ",":
                edits.append((token.start, tokens[index + 2].start, ""))  # one of several imported names
        elif token.type == tokenize.NAME:
            text = convert_name(token.string)
            if text != token.string:
                edits.append((token.start, token.end, text))
        elif token.type in STRINGS:
            text = convert_text(token.string)
            if text != token.string:
                edits.append((token.start, token.end, text))
    for start, end, text in reversed(edits):
        head = lines[start[0] - 1][: start[1]]
        tail = lines[end[0] - 1][end[1] :]
        lines[start[0] - 1 : end[0]] = [head + text + tail]
    return "".join(lines)


def tidy(text: str, *, name: str) -> str:
    """Format the text with ruff: join shortened lines, sort imports."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    for command in (["check", "--select", "I", "--fix-only", "--quiet"], ["format", "--quiet"]):
        run = subprocess.run(
            [ruff, *command, "--no-cache", "--stdin-filename", name, "-"],
            input=text,
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        if run.returncode:
            raise SystemExit(f"{name}: ruff: {run.stderr}")
        text = run.stdout
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail on drift instead of writing")
    check = parser.parse_args().check
    bad: list[str] = []
    for source_dir, target_dir in PAIRS:
        sources = {path.name: path for path in sorted((ROOT / source_dir).glob("*.py"))}
        if not check:
            (ROOT / target_dir).mkdir(parents=True, exist_ok=True)
            for name in sources:  # ruff sorts an import as first-party only if its file exists
                (ROOT / target_dir / name).touch()
        for name, path in sources.items():
            target = ROOT / target_dir / name
            header = HEADER.format(source=f"{source_dir}/{name}")
            # Pass ruff the source's name, because its configuration excludes the target's directory.
            text = tidy(header + convert(path.read_text()), name=f"{source_dir}/{name}")
            if target.exists() and target.read_text() == text:
                continue
            if check:
                bad.append(f"{target_dir}/{name} differs from what {source_dir}/{name} generates")
            else:
                target.write_text(text)
                print(f"wrote {target_dir}/{name}")
        for leftover in sorted({path.name for path in (ROOT / target_dir).glob("*.py")} - set(sources)):
            bad.append(f"{target_dir}/{leftover} has no source")
    rules = {*NAMES, *DROPPED, *UNWRAPPED, *TEXTS, PREFIX.pattern}
    bad += [f"the rule {rule!r} was never used" for rule in sorted(rules - used)]
    for line in bad:
        print(f"async_to_sync: {line}", file=sys.stderr)
    if check and bad:
        print("async_to_sync: run tools/async_to_sync.py to regenerate", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
