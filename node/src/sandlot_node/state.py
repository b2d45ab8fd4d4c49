"""Keeps on disk which slots use which images, so that a restarted agent evicts nothing in use. No credentials."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

from .images import ImageId, SlotId
from .ledger import Entry, Ledger

_log = logging.getLogger(__name__)


class State:
    """A file of all images, and a log of those that have changed since. None survives the node's crash, as no slot does.

    A claim waits for the record of its use, whose cost must not grow with the number of images.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = directory / "images.json"
        self._changes = directory / "images.log"

    def save(self, ledger: Ledger) -> None:
        """Write all images. Raises OSError."""
        document = {image_id: _document(entry) for image_id, entry in ledger.entries.items()}
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(document))
        os.replace(part, self._path)
        # Afterwards: an agent that is killed in between reads changes again that the file has.
        self._changes.unlink(missing_ok=True)

    def note(self, image_id: ImageId, entry: Entry) -> None:
        """Write one image that has changed. Raises OSError."""
        # The line break comes first: otherwise a line that a full disk has cut off would spoil the next one.
        line = f"\n{json.dumps([image_id, _document(entry)])}".encode()
        fd = os.open(self._changes, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if os.write(fd, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._changes))
        finally:
            os.close(fd)

    def load(self) -> dict[ImageId, Entry]:
        """Return what was saved, without the images' parts, which the engine knows."""
        found: dict[ImageId, Entry] = {}
        try:
            document: dict[str, dict[str, Any]] = json.loads(self._path.read_text())
            found = {ImageId(image_id): _entry(saved) for image_id, saved in document.items()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            _log.error("could not read %s, so no image counts as in use: %s", self._path, error)
        return found | self._changed()

    def _changed(self) -> dict[ImageId, Entry]:
        found: dict[ImageId, Entry] = {}
        try:
            lines = self._changes.read_text().splitlines()
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            _log.error("could not read %s, so the latest uses do not count: %s", self._changes, error)
            return {}
        for line in filter(None, lines):
            try:
                image_id, saved = json.loads(line)
                found[ImageId(image_id)] = _entry(saved)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                _log.error("could not read a line of %s, so its use does not count: %s", self._changes, error)
        return found


def _document(entry: Entry) -> dict[str, Any]:
    return {"last_used": entry.last_used, "names": entry.names, "uses": entry.uses}


def _entry(saved: dict[str, Any]) -> Entry:
    return Entry(
        parts={},
        last_used=float(saved["last_used"]),
        names=[str(name) for name in saved["names"]],
        uses={SlotId(slot): float(since) for slot, since in saved["uses"].items()},
    )
