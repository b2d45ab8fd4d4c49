"""Logging: one JSON object per line on standard error, without `logging`, which costs 0.3 MiB."""

from __future__ import annotations

import json
import os
import time

_common: dict[str, object] = {}


def bind(**fields: object) -> None:
    """Add fields to every later line (the instance id)."""
    _common.update(fields)


def event(name: str, **fields: object) -> None:
    """Write one line; never pass a token or a secret here. A full or closed stderr loses the line, nothing else."""
    line = {"at": round(time.time(), 3), "event": name, **_common, **fields}
    try:
        os.write(2, (json.dumps(line, default=str) + "\n").encode())
    except OSError:
        return


def failure(name: str, error: BaseException, **fields: object) -> None:
    """Log an exception: its type, its text and the innermost frames as file:line."""
    frames: list[str] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}:{code.co_name}")
        trace = trace.tb_next
    event(name, error=f"{type(error).__name__}: {error}", where=frames[-6:], **fields)
