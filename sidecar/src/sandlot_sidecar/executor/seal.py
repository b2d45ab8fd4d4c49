"""Shuts the import system: once the root is the sandbox's, what it holds must never be run out here."""

from __future__ import annotations

import codecs
import sys


def seal() -> None:
    """Allow no module but those loaded by now; for the executor and its children, for good."""
    for name in ("ascii", "utf-8", "latin-1"):
        codecs.lookup(name)
    sys.path.clear()
    sys.path_hooks.clear()
    sys.path_importer_cache.clear()
    sys.meta_path.clear()
