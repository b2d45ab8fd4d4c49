"""Downloads Go modules, with the settings that all builds share."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.cluster.shell import run
from tests.cluster.versions import GoModule


def environment() -> dict[str, str]:
    """Static programs, dependencies as the modules' own requirements pin them, no other toolchain."""
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def module_source(module: GoModule) -> Path:
    """Where the Go tool keeps a module's files; downloaded if need be."""
    answer = run(["go", "mod", "download", "-json", f"{module.path}@{module.version}"], env=environment())
    return Path(json.loads(answer)["Dir"])
