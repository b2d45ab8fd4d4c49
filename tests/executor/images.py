"""Images for claims: directories with a root each, and what a claim says of one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.roots import make_root


@contextmanager
def two_images() -> Iterator[Path]:
    """A directory with two images. Not pytest's own: that one is closed to an ordinary user."""
    with tempfile.TemporaryDirectory(prefix="sandlot-test-") as name:
        os.chmod(name, 0o755)
        for image in ("one", "two"):
            make_root(Path(name), image)
        yield Path(name)


def image_of(images: Path, name: str) -> dict[str, Any]:
    return {"lower": [str(images / name / "rootfs")], "mask": [], "claimed": True}
