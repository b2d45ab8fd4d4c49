"""What the cache of images keeps: archives in use, also those of other checkouts, and nothing that a killed build left."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.toolchains.build import clean


def test_only_what_nobody_uses_is_deleted(tmp_path: Path) -> None:
    days = {"java-0000.tar": 8, "java-1111.tar": 6, "swift-2222.tar": 0, "lock": 30}
    for name, age in days.items():
        (tmp_path / name).touch()
        then = time.time() - age * 86400
        os.utime(tmp_path / name, (then, then))
    (tmp_path / "java-3333.part").touch()
    (tmp_path / "build-x" / "npm").mkdir(parents=True)
    clean(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"java-1111.tar", "swift-2222.tar", "lock"}
