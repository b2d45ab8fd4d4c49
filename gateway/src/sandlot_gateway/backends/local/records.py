"""The record on disk by which the next gateway finds an instance and recognises its process."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template

from ...atomic_file import write_atomic
from .processes import ProcessKey


@dataclass(slots=True)
class Record:
    """`{instance dir}/instance.json`. It holds no secret: tokens are derived from the master key."""

    id: InstanceId
    template: Template
    pool: str | None = None
    process: ProcessKey | None = None  # None until the sidecar has started
    cgroups: list[str] = field(default_factory=list)  # absolute directories
    gpus: list[int] = field(default_factory=list)  # their minor numbers
    created_at: float = field(default_factory=time.time)

    def save(self, path: Path) -> None:
        document: dict[str, Any] = asdict(self) | {
            "process": None if self.process is None else self.process.to_json()
        }
        write_atomic(path, json.dumps(document).encode())


def load_record(path: Path) -> Record | None:
    """Load a record; return None if it is missing or incomplete."""
    try:
        document: Any = json.loads(path.read_bytes())
        return Record(
            id=InstanceId(str(document["id"])),
            template=Template(**document["template"]),
            pool=document["pool"],
            process=ProcessKey.from_json(document["process"]),
            cgroups=[str(item) for item in document["cgroups"]],
            gpus=[int(item) for item in document.get("gpus", ())],  # an earlier version's has none
            created_at=float(document["created_at"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
