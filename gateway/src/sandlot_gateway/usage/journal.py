"""Writes the claims and ends of sandboxes to disk, so that a killed gateway's next process counts each of them once."""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path

import msgspec
from sandlot_contract.ids import SandboxId

from sandlot_gateway.appended import append_line
from sandlot_gateway.atomic_file import write_atomic
from sandlot_gateway.core.bad_json import NOT_JSON
from sandlot_gateway.core.usage import Document, Stay, day_of

_log = logging.getLogger(__name__)

_LINES = 10_000  # up to which the file is not rewritten for its size


class Ended(msgspec.Struct, frozen=True, gc=False):
    stay: Stay
    at: float


class Batch(msgspec.Struct):
    """Sums of ended sandboxes on their way into the document of `day`, which marks `serial`."""

    serial: int
    day: int
    sandboxes: list[SandboxId]
    sums: Document


class _Line(msgspec.Struct, omit_defaults=True):
    """A claim, its end, that it is added early, all three, the withdrawal of a claim, or the serial of the last batch."""

    claimed: Stay | None = None
    ended: SandboxId | None = None
    at: float = 0.0
    early: SandboxId | None = None
    withdrawn: SandboxId | None = None
    serial: int | None = None


class Journal:
    """An append-only file, rewritten when a batch takes ended sandboxes out of it or it is long, and a file for each batch.

    Like the archive it is written without fsync: it must survive this process, not the machine.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "journal.jsonl"
        self._fd: int | None = None
        self._encoder = msgspec.json.Encoder()
        self.claimed: dict[SandboxId, Stay] = {}
        self.ended: dict[SandboxId, Ended] = {}
        # Those on their way into the sums of records, see early.py: maybe there, or not.
        self.early: dict[SandboxId, Ended] = {}
        self.batches: list[Batch] = []
        self._serial = 0
        self._lines = 0  # in the file
        self._outdated = False  # the file has sandboxes of a batch
        self._name = ""

    @property
    def name(self) -> str:
        """The name of this gateway's sums, which stays across restarts on one state directory. Raises OSError."""
        if not self._name:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._directory / "name"
            if not path.exists():
                write_atomic(path, secrets.token_hex(8).encode(), durable=True)
            self._name = path.read_text()
        return self._name

    def load(self) -> None:
        """Read what an earlier process left; skip damaged lines."""
        for path in sorted(self._directory.glob("batch-*.json")):
            try:
                self.batches.append(msgspec.json.decode(path.read_bytes(), type=Batch))
            except NOT_JSON as error:
                _log.error("cannot read the usage in %s, which is not counted: %s", path, error)
        self.batches.sort(key=lambda batch: batch.serial)
        decoder = msgspec.json.Decoder(_Line)
        for text in self._path.read_bytes().splitlines() if self._path.exists() else []:
            try:
                self._apply(decoder.decode(text))
            except NOT_JSON:
                _log.warning("skipped a damaged line of %s", self._path)
        for batch in self.batches:
            self._serial = max(self._serial, batch.serial)
            for sandbox_id in batch.sandboxes:  # the process died before it rewrote the journal
                self._drop_end(sandbox_id)
        self._rewrite()

    def note_claimed(self, stay: Stay) -> None:
        self._write(_Line(claimed=stay))

    def note_ended(self, sandbox_id: SandboxId, at: float) -> None:
        self._write(_Line(ended=sandbox_id, at=at))

    def note_early(self, sandbox_id: SandboxId) -> None:
        """Note that an ended sandbox goes into the sums of records, before that is tried."""
        self._write(_Line(early=sandbox_id))

    def withdraw(self, sandbox_id: SandboxId) -> None:
        """Forget a claim that another one replaces, or that a record counts."""
        self._write(_Line(withdrawn=sandbox_id))

    def take(self, sandbox_ids: list[SandboxId], *, now: float, sums: Document) -> None:
        """Turn ended sandboxes into a batch of the day of `now`. Raises OSError, and nothing is taken."""
        # A power cut may lose the journal and spare the documents: a serial below their mark would not be counted.
        serial = max(self._serial + 1, int(now))
        batch = Batch(serial, day_of(now), sandbox_ids, sums)
        write_atomic(self._batch_path(batch.serial), self._encoder.encode(batch))
        self._serial = batch.serial
        self.batches.append(batch)
        for sandbox_id in sandbox_ids:
            self._drop_end(sandbox_id)
        self._rewrite()

    def shorten(self) -> None:
        """Rewrite the file once most of its lines are of sandboxes that are counted elsewhere."""
        if self._lines > max(_LINES, 2 * (len(self.claimed) + len(self.ended) + len(self.early))):
            self._rewrite()

    def done(self, batch: Batch) -> None:
        """Forget a batch whose sums a document has."""
        if self._outdated:
            self._rewrite()
        if self._outdated:
            return  # without the batch's file, the next process would count its sandboxes again
        self.batches.remove(batch)
        self._batch_path(batch.serial).unlink(missing_ok=True)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, line: _Line) -> None:
        self._apply(line)
        self._lines += 1
        try:
            if self._fd is None:
                flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            append_line(self._fd, self._encoder.encode(line) + b"\n")
        except OSError as error:
            _log.error("cannot write %s: %s; a restart will not count a sandbox", self._path, error)

    def _apply(self, line: _Line) -> None:
        if line.claimed is not None:
            self.claimed[line.claimed.sandbox_id] = line.claimed
            self._drop_end(line.claimed.sandbox_id)  # it was missed, and is here after all
        if line.ended is not None and (stay := self.claimed.pop(line.ended, None)) is not None:
            self.ended[line.ended] = Ended(stay, line.at)
        if line.early is not None and (ended := self.ended.pop(line.early, None)) is not None:
            self.early[line.early] = ended
        if line.withdrawn is not None:
            self.claimed.pop(line.withdrawn, None)
            self._drop_end(line.withdrawn)
        if line.serial is not None:
            self._serial = line.serial

    def _drop_end(self, sandbox_id: SandboxId) -> None:
        self.ended.pop(sandbox_id, None)
        self.early.pop(sandbox_id, None)

    def _rewrite(self) -> None:
        lines = [_Line(serial=self._serial)]
        lines += [_Line(claimed=stay) for stay in self.claimed.values()]
        for ended in self.ended.values():
            lines.append(_Line(claimed=ended.stay, ended=ended.stay.sandbox_id, at=ended.at))
        for sandbox_id, ended in self.early.items():
            lines.append(_Line(claimed=ended.stay, ended=sandbox_id, at=ended.at, early=sandbox_id))
        try:
            write_atomic(self._path, b"".join(self._encoder.encode(line) + b"\n" for line in lines))
        except OSError as error:
            _log.error("cannot rewrite %s, which grows: %s; make room on its disk", self._path, error)
            self._outdated = True
            return
        self._outdated = False
        self._lines = len(lines)
        self.close()  # the next line goes into the new file

    def _batch_path(self, serial: int) -> Path:
        return self._directory / f"batch-{serial}.json"
