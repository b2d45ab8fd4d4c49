"""What tenants' own templates are: by name and tag, for creates, and as E2B's routes of aliases and tags change them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import msgspec

from sandlot_gateway.control.checkpoints import checkpoints_of
from sandlot_gateway.control.services import Services
from sandlot_gateway.keys import Tenant

from ..documents import iso
from ..failures import Problem
from ..requests import read
from ..saved import OF_SNAPSHOT, of_metadata
from ..template import Template
from ..templates import Templates
from .building import assign, settle
from .names import DEFAULT_TAG, is_template_id, named, read_name, read_tags, template_id
from .records import Records, TemplateRecord


class NewTags(msgspec.Struct):
    target: str
    tags: list[str]


class OldTags(msgspec.Struct):
    name: str
    tags: list[str]


class Catalogue:
    """Methods raise Problem, ApiError; a tenant sees nothing of others."""

    def __init__(self, have: Services, *, records: Records | None, templates: Templates) -> None:
        self._have = have
        self._templates = templates
        self._kept = records

    @property
    def _records(self) -> Records:
        checkpoints_of(self._have)
        assert self._kept is not None  # the setting of both is the same
        return self._kept

    async def find(self, name: str, who: Tenant) -> Template:
        """Return what a create with this template uses; an operator's name wins over a tenant's own."""
        if self._kept is not None and not self._templates.is_operators(name, who):
            try:
                own = await self._own(name, who)
            except OSError as error:
                text = f"the directory of checkpoints cannot be read: {error.strerror}: ask the operator"
                raise Problem(503, text, headers=[(b"retry-after", b"1")]) from error
            if own is not None:
                return own
        found = self._templates.find(name, who)
        if found.checkpoint is None or self._have.checkpoints is None:
            return found
        snapshot = await self._have.checkpoints.get(who.name, found.checkpoint)
        return (
            found if snapshot is None else replace(found, saved=of_metadata(snapshot.metadata, OF_SNAPSHOT))
        )

    async def _own(self, name: str, who: Tenant) -> Template | None:
        record, tag = await self._found(name, who)
        tagged = None if record is None else record.tags.get(tag)
        if record is None or tagged is None:
            return None
        checkpoint = await checkpoints_of(self._have).get(who.name, tagged.checkpoint)
        saved = None if checkpoint is None else of_metadata(checkpoint.metadata)
        if saved is None:
            raise Problem(404, f"the files of template {name!r} were deleted: build it again")
        full = record.name if tag == DEFAULT_TAG else f"{record.name}:{tag}"
        return Template(checkpoint=tagged.checkpoint, saved=saved, name=full)

    async def _found(self, name: str, who: Tenant) -> tuple[TemplateRecord | None, str]:
        """Return the template with this name or id, and the tag that is meant."""
        wanted = named(name)
        if wanted is None:
            return None, DEFAULT_TAG
        ids = [template_id(who.name, wanted.name)]
        if is_template_id(wanted.name):
            ids.insert(0, wanted.name)
        for each in ids:
            found = await asyncio.to_thread(self._records.find, each, tenant=who.name)
            if found is not None:
                return found, wanted.tag or DEFAULT_TAG
        return None, DEFAULT_TAG

    async def _known(self, name: str, who: Tenant) -> TemplateRecord:
        found, _ = await self._found(name, who)
        if found is None or not found.tags:
            raise Problem(404, f"the template {name[:100]!r} was not found")
        return found

    async def alias(self, name: str, who: Tenant) -> dict[str, Any]:
        """Say whether a name can be used: an operator's, or a template of the tenant that has been built."""
        if self._templates.is_operators(name, who):
            return {"templateID": name, "public": True}
        record, tag = await self._found(name, who)
        wanted = named(name)
        if record is None or not record.tags or (wanted and wanted.tag and tag not in record.tags):
            raise Problem(404, f"the template {name[:100]!r} was not found")
        return {"templateID": record.id, "public": False}

    async def tags(self, name: str, who: Tenant) -> list[dict[str, Any]]:
        found = await self._known(name, who)
        return [
            {"tag": tag, "buildID": each.build, "createdAt": iso(each.at)} for tag, each in found.tags.items()
        ]

    async def assign(self, body: bytes, who: Tenant) -> dict[str, Any]:
        """Let tags name the build that the target names."""
        asked = read(body, NewTags)
        wanted = read_name(asked.target, field="target")
        tags = read_tags(asked.tags)
        known = await self._known(asked.target, who)

        def change() -> str:
            with self._records.template(known.id, tenant=who.name, name=known.name) as record:
                tagged = record.tags.get(wanted.tag or DEFAULT_TAG)
                if tagged is None:
                    text = (
                        f"target: the template has no tag {wanted.tag or DEFAULT_TAG!r}: name one that it has"
                    )
                    raise Problem(404, text)
                assign(record.tags, record.former, tags, msgspec.structs.replace(tagged, at=time.time()))
                return tagged.build

        return {"tags": tags, "buildID": await asyncio.to_thread(change)}

    async def unassign(self, body: bytes, who: Tenant) -> None:
        """Remove tags; a template without any is none."""
        asked = read(body, OldTags)
        tags = read_tags(asked.tags)
        known = await self._known(asked.name, who)

        def change() -> None:
            with self._records.template(known.id, tenant=who.name, name=known.name) as record:
                missing = [tag for tag in tags if tag not in record.tags]
                if missing:
                    raise Problem(404, f"tags: the template has no tag {missing[0]!r}")
                before = {each.checkpoint for each in record.tags.values()}
                for tag in tags:
                    del record.tags[tag]
                settle(record.tags, record.former, before)

        await asyncio.to_thread(change)

    async def delete(self, name: str, who: Tenant) -> None:
        """Delete a template with its files, and end its builds; sandboxes made from it stay."""
        found, _ = await self._found(name, who)
        if found is None:
            raise Problem(404, f"the template {name[:100]!r} was not found")
        for build in await asyncio.to_thread(self._records.building, found.id):
            sandbox = self._have.directory.of_tenant(build.sandbox, who.name) if build.sandbox else None
            if sandbox is not None:
                self._have.lifecycle.ends.delete(sandbox)
        gone = await asyncio.to_thread(self._records.remove, found.id, tenant=who.name)
        if gone is None:
            return
        checkpoints = checkpoints_of(self._have)
        for checkpoint_id in {*(each.checkpoint for each in gone.tags.values()), *gone.former}:
            checkpoint = await checkpoints.get(who.name, checkpoint_id)
            if checkpoint is not None:
                await checkpoints.delete(checkpoint)
