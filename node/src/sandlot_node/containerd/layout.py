"""Lays out the images' directory, in which a name appears only with everything that is to be found below it.

gVisor with exclusive file access never looks again at a name that it has asked for: what was absent stays absent, and
what was removed stays as it was. So an image gets a name that no other had before, and is mounted in a directory that is
renamed when it is whole. That directory is below the images' own: a mount elsewhere would not propagate to pods.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandlot_node.images import ImageId

from . import mounts

_STAGING = ".staging"
ROOTFS = "rootfs"
DOCUMENT = "image.json"


class Layout:
    """The directory IMAGES: IMAGES/NAME/rootfs, IMAGES/NAME/image.json. Its calls block for milliseconds."""

    def __init__(self, images: Path) -> None:
        self.images = images
        self._staging = images / _STAGING
        self._last = 0

    def prepare(self) -> None:
        """Create the directories, and remove what an agent that was killed left half done."""
        self._staging.mkdir(parents=True, exist_ok=True)
        # Otherwise users of the node could run the set-user-ID programs of tenants' images, and read private ones.
        self.images.chmod(0o700)
        self._staging.chmod(0o700)
        for left_over in list(self._staging.iterdir()):
            self._clear(left_over)

    def new_name(self, image_id: ImageId) -> str:
        """Return a directory name that was not used before, also not by an earlier agent."""
        self._last = max(self._last + 1, time.time_ns() // 1_000_000)
        return f"{image_id.replace(':', '-')}.{self._last:x}"

    def rootfs(self, name: str) -> Path:
        return self.images / name / ROOTFS

    def put(self, name: str, wanted: Sequence[mounts.Mount], document: dict[str, Any]) -> Path:
        """Make an image's directory appear whole, and return its rootfs. Raises MountError or OSError."""
        stage = self._staging / name
        try:
            (stage / ROOTFS).mkdir(parents=True)
            stage.chmod(0o755)
            (stage / DOCUMENT).write_text(json.dumps(document))
            mounts.mount(wanted, stage / ROOTFS)
            stage.rename(self.images / name)
        except BaseException:
            self._clear(stage)
            raise
        return self.rootfs(name)

    def document(self, name: str) -> dict[str, Any] | None:
        """Return an image's document; None: it cannot be read."""
        try:
            return json.loads((self.images / name / DOCUMENT).read_text())
        except (OSError, ValueError):
            return None

    def take(self, name: str) -> None:
        """Make an image's directory disappear whole. Raises MountError or OSError."""
        place, stage = self.images / name, self._staging / name
        with suppress(FileNotFoundError):
            place.rename(stage)
        self._clear(stage)

    def _clear(self, stage: Path) -> None:
        if (stage / ROOTFS) in mounts.mounted_below(self._staging):
            mounts.unmount(stage / ROOTFS)
        with suppress(FileNotFoundError):
            (stage / DOCUMENT).unlink()
        # Never a recursive removal of the rootfs: were it still mounted, that would delete an image's files.
        with suppress(FileNotFoundError):
            (stage / ROOTFS).rmdir()
        shutil.rmtree(stage, ignore_errors=True)

    def names(self) -> set[str]:
        """Return the names in the directory."""
        return {path.name for path in self.images.iterdir() if path.name != _STAGING}

    def mounted(self) -> set[str]:
        """Return the names whose rootfs is mounted."""
        below = mounts.mounted_below(self.images)
        return {name for name in self.names() if self.rootfs(name) in below}
