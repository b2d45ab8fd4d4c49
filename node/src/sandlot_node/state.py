"""Keeps on disk which slots use which images, so that a restarted agent evicts nothing in use. No credentials."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from .images import ImageId, SlotId
from .ledger import Entry, Ledger

_log = logging.getLogger(__name__)


class State:
    """A file that is replaced whole. It need not survive the node's crash, which also ends every slot."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = directory / "images.json"

    def save(self, ledger: Ledger) -> None:
        document = {
            image_id: {"last_used": entry.last_used, "names": entry.names, "uses": entry.uses}
            for image_id, entry in ledger.entries.items()
        }
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(document))
        os.replace(part, self._path)

    def load(self) -> dict[ImageId, Entry]:
        """Return what was saved, without the images' parts, which the engine knows."""
        try:
            document: dict[str, dict[str, Any]] = json.loads(self._path.read_text())
            return {
                ImageId(image_id): Entry(
                    parts={},
                    last_used=float(entry["last_used"]),
                    names=[str(name) for name in entry["names"]],
                    uses={SlotId(slot): float(since) for slot, since in entry["uses"].items()},
                )
                for image_id, entry in document.items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            _log.error("could not read %s, so no image counts as in use: %s", self._path, error)
            return {}
