"""Chooses the directory for what the local backend keeps."""

from __future__ import annotations

import os
from pathlib import Path


def default_state_dir() -> Path:
    """Return $SANDLOT_HOME, else /run/sandlot for root, else the user's runtime or state directory."""
    home = os.environ.get("SANDLOT_HOME")
    if home:
        return Path(home)
    if os.geteuid() == 0 and os.access("/run", os.W_OK):
        return Path("/run/sandlot")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "sandlot"
    return Path.home() / ".local" / "state" / "sandlot"
