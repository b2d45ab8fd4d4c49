"""Writes the records of many ended sandboxes where a gateway keeps its own, for it to load at its start."""

from __future__ import annotations

import time
from pathlib import Path

from sandlot_contract.new_ids import new_sandbox_id
from sandlot_gateway.archive import Archive
from sandlot_gateway.sandboxes import Sandbox, Spec

RUNS_EACH = 1000
VERDICTS = ("deleted", "idle", "deadline", "oom", "image_pull")
IMAGES = ("docker.io/library/python:3.12-slim", "docker.io/library/debian:bookworm", "ghcr.io/acme/task:7")


def write_records(state_dir: Path, count: int, *, tenant: str = "default") -> None:
    """Of each run a thousand, of each verdict a fifth, of each image a third, all ended in the last half hour."""
    archive = Archive(state_dir / "records", keep=3600.0, limit=count)
    now = time.time()
    for number in range(count):
        at = now - 1800.0 + 1500.0 * number / count
        spec = Spec(
            name=f"rollout-{number}",
            image=IMAGES[number % len(IMAGES)],
            run=f"run-{number // RUNS_EACH}",
            labels=["grpo", f"step-{number // 100}"],
        )
        sandbox = Sandbox(
            id=new_sandbox_id(at),
            tenant=tenant,
            spec=spec,
            created_at=at,
            updated_at=at,
            started_at=at + 0.05,
        )
        sandbox.finish(VERDICTS[number % len(VERDICTS)], at=at + 60.0, message="written for a test")
        archive.append(sandbox)
    archive.close()
