"""Documents of tenants' templates in the directory of checkpoints. Each changes under a lock of its tenant's directory."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from sandlot_gateway.atomic_file import write_atomic

from .locks import Lock
from .names import is_template_id, tenant_part

KEPT = 2 * 3600.0  # seconds for which a template without files stays, and a build that ended or never began
Kind = TypeVar("Kind")


class Gone(Exception):
    """Raised for a template that was deleted meanwhile."""


class Tagged(msgspec.Struct):
    """The build that a tag names."""

    build: str
    checkpoint: str
    at: float


class TemplateRecord(msgspec.Struct):
    """A template; `former`: checkpoints that no tag names any more, and since when.

    `life` tells it from a later one with its name. One that is `deleted` stays until its files are deleted, too.
    """

    id: str
    tenant: str
    name: str
    tags: dict[str, Tagged] = {}
    former: dict[str, float] = {}
    life: str = ""
    deleted: bool = False

    def is_life(self, life: str) -> bool:
        """Return whether it is the template of a build that has this; gateways of an earlier build wrote none."""
        return not self.deleted and life in ("", self.life or life)


class TemplateRecords:
    """One directory. Methods block; they raise OSError for disk errors."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def tenant_directory(self, template: str) -> Path:
        return self._directory / tenant_part(template)

    def tenants(self) -> list[Path]:
        """Return the directories of all tenants."""
        return (
            [path for path in self._directory.iterdir() if path.is_dir()] if self._directory.is_dir() else []
        )

    def templates(self, directory: Path) -> list[TemplateRecord]:
        """Return the templates of a tenant's directory, also those being deleted."""
        found = (read_document(path, TemplateRecord) for path in directory.glob("template-*.json"))
        return [one for one in found if one is not None]

    def find(self, template: str, *, tenant: str) -> TemplateRecord | None:
        """Return a tenant's template, unless it was deleted."""
        found = self.stored(template, tenant=tenant)
        return None if found is None or found.deleted else found

    def of_upload(self, template: str) -> TemplateRecord | None:
        """Return the template of an upload link, which is its credential, unless it was deleted."""
        found = self._stored(template)
        return None if found is None or found.deleted else found

    def stored(self, template: str, *, tenant: str) -> TemplateRecord | None:
        """Return the document of a tenant's template, which may be a deleted one's."""
        found = self._stored(template)
        return found if found is not None and found.tenant == tenant else None

    @contextlib.contextmanager
    def template(
        self, template: str, *, tenant: str, name: str, life: str | None = None
    ) -> Iterator[TemplateRecord]:
        """Change a template; it is saved at the end, and made if there is none.

        With the `life` of a build, it has to be the template of this build. Raises Gone.
        """
        with self._changing(template):
            found = self.stored(template, tenant=tenant)
            if life is not None and (found is None or not found.is_life(life)):
                raise Gone(f"the template {name!r} was deleted")
            if found is None:
                found = TemplateRecord(template, tenant, name, deleted=True)
            if found.deleted:
                found.deleted, found.life = False, secrets.token_hex(8)
            yield found
            self._write(found)

    def delete(self, template: str, *, tenant: str) -> bool:
        """Delete a template, whose files can be deleted from then on; return whether there was one."""
        with self._changing(template):
            found = self.find(template, tenant=tenant)
            if found is None:
                return False
            checkpoints = {*(each.checkpoint for each in found.tags.values()), *found.former}
            found.tags, found.former, found.deleted = {}, dict.fromkeys(checkpoints, 0.0), True
            self._write(found)
            return True

    def forget(self, template: str, *, tenant: str, checkpoints: set[str]) -> None:
        """Forget former checkpoints, whose files are deleted; with the last one goes a template that was."""
        with self._changing(template):
            found = self.stored(template, tenant=tenant)
            if found is None:
                return
            found.former = {one: since for one, since in found.former.items() if one not in checkpoints}
            if found.deleted and not found.former:
                self._template(template).unlink(missing_ok=True)
            else:
                self._write(found)

    def sweep_templates(self, directory: Path) -> None:
        """Delete the documents of templates that never had a build, or none any more."""
        before = time.time() - KEPT
        for path in directory.glob("template-*.json"):
            if not _is_unused(path, before):
                continue
            with self._changing(path.stem.removeprefix("template-")):
                if _is_unused(path, before):  # no build has been requested meanwhile
                    path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _changing(self, template: str) -> Iterator[None]:
        path = self._file(template, "templates.lock")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = Lock.taken(path, wait=True)
        assert lock is not None
        with lock:
            yield

    def _stored(self, template: str) -> TemplateRecord | None:
        return read_document(self._template(template), TemplateRecord) if is_template_id(template) else None

    def _write(self, record: TemplateRecord) -> None:
        write_atomic(self._template(record.id), msgspec.json.encode(record), durable=True)

    def _template(self, template: str) -> Path:
        return self._file(template, f"template-{template}.json")

    def _file(self, template: str, name: str) -> Path:
        return self.tenant_directory(template) / name


def read_document(path: Path, kind: type[Kind]) -> Kind | None:
    """Read a document; return None if it is missing or invalid."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _is_unused(path: Path, before: float) -> bool:
    """Return whether a template has had no files since a time; also a document that cannot be read."""
    try:
        if path.stat().st_mtime >= before:
            return False
    except FileNotFoundError:
        return False
    found = read_document(path, TemplateRecord)
    return found is None or not (found.tags or found.former)
