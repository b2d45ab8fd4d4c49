"""Stores sandbox records on disk: JSON lines in segments, which are deleted whole when they are old."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from sandlot_contract.ids import SandboxId

from sandlot_gateway.appended import append_line
from sandlot_gateway.core.bad_json import NOT_JSON
from sandlot_gateway.sandboxes import Sandbox

_log = logging.getLogger(__name__)

_SEGMENT_LINES = 2000


class Archive:
    """A log of records, written without fsync: they must survive this process, not the machine.

    Ended sandboxes are kept for `keep` seconds, at most `limit` of them. The record of a running one only serves to
    give it a verdict if its sidecar is gone at the next start; all else about live ones comes from their sidecars.
    """

    def __init__(
        self, directory: Path, *, keep: float, limit: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._directory = directory
        self._keep = keep
        self._limit = limit
        self._clock = clock
        self._encoder = msgspec.json.Encoder()
        self._fd: int | None = None
        self._opened_at = 0.0
        self._written = 0
        self._serial = 0

    def load(self) -> tuple[list[Sandbox], list[Sandbox]]:
        """Read the ended sandboxes to keep, oldest first, and those that were running; skip damaged lines."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        decoder = msgspec.json.Decoder(Sandbox)
        since = self._clock() - self._keep
        found: dict[SandboxId, Sandbox] = {}
        for segment in self._segments():
            for line in segment.read_bytes().splitlines():
                try:
                    sandbox = decoder.decode(line)
                except NOT_JSON:
                    _log.warning("skipped a damaged record", extra={"segment": segment.name})
                    continue
                found[sandbox.id] = sandbox
        ended = [sandbox for sandbox in found.values() if (sandbox.ended_at or 0.0) >= since]
        ended.sort(key=lambda sandbox: sandbox.ended_at or 0.0)
        return ended[-self._limit :] if self._limit else [], [s for s in found.values() if s.live]

    def append(self, sandbox: Sandbox) -> None:
        """Append the record of a running or ended sandbox. If the disk is full, log an error and go on."""
        try:
            if self._fd is None or self._written >= _SEGMENT_LINES or self._segment_is_old():
                self._rotate()
            assert self._fd is not None
            append_line(self._fd, self._encoder.encode(sandbox) + b"\n")
            self._written += 1
        except OSError as error:
            _log.error(
                "cannot write the record of a sandbox: %s; a restart will not know it",
                error,
                extra={"sandbox": sandbox.id},
            )

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _segment_is_old(self) -> bool:
        return self._clock() - self._opened_at > max(self._keep / 6, 1.0)

    def _rotate(self) -> None:
        self.close()
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._serial += 1
        self._opened_at = self._clock()
        name = f"{int(self._opened_at * 1000):015d}-{self._serial:06d}.jsonl"
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self._directory / name, flags, 0o600)
        self._written = 0
        self._prune()

    def _prune(self) -> None:
        segments = self._segments()
        enough = 2 * self._limit // _SEGMENT_LINES + 2
        for index, segment in enumerate(segments[:-1]):
            too_many = len(segments) - index > enough
            if too_many or self._clock() - segment.stat().st_mtime > self._keep:
                segment.unlink(missing_ok=True)

    def _segments(self) -> list[Path]:
        return sorted(self._directory.glob("*.jsonl"))
