"""E2B's routes of builds: request one, upload its files, start it, and ask how it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from sandlot_gateway.audit.call import note
from sandlot_gateway.control.checkpoints import checkpoints_of
from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.hang_ups import has_hung_up
from sandlot_gateway.control.services import Services
from sandlot_gateway.data.answers import Receive, Scope
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.request_gate import RequestGate
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox

from ..failures import Problem
from ..requests import read
from ..templates import Templates
from ..uploads import body_pieces
from . import readiness
from .archives import Archives
from .building import Builder
from .catalogue import Catalogue
from .links import Link, base_of, link, upload_of
from .logbook import MOST_ENTRIES, entries
from .names import DEFAULT_TAG, is_files_hash, read_name, read_tags
from .records import BuildRecord, Records, State, TooMany, new_build
from .starting import Starter
from .sweeping import Sweeper

_NO_DIRECTORY = (
    "builds keep their documents in a directory that all gateways mount, also where checkpoints are in a bucket; set"
    " --checkpoint-dir (chart value gateway.checkpoints.claim)"
)


class Requested(msgspec.Struct, rename="camel"):
    name: str | None = None
    alias: str | None = None
    tags: list[str] | None = None
    cpu_count: int | None = None
    memory_mb: int | None = msgspec.field(default=None, name="memoryMB")
    min_free_disk_mb: int | None = msgspec.field(default=None, name="minFreeDiskMb")


class Builds:
    """Methods raise Problem, ApiError; a tenant sees nothing of others."""

    def __init__(self, have: Services, *, templates: Templates, gate: RequestGate, pool: HttpPool) -> None:
        self._have = have
        self._templates = templates
        self._directory = directory = have.settings.checkpoints()
        self._kept = Records((have.settings.state_dir if directory is None else directory) / "e2b")
        self._archives = Archives()
        self._sweeper = Sweeper(have, self._kept)
        self._builder = Builder(
            have, records=self._kept, archives=self._archives, sweeper=self._sweeper, gate=gate, pool=pool
        )
        self.catalogue = Catalogue(
            have, records=directory and self._kept, sweeper=self._sweeper, templates=templates
        )
        self._starter = Starter(
            have,
            records=self._kept,
            archives=self._archives,
            builder=self._builder,
            catalogue=self.catalogue,
            templates=templates,
        )

    @property
    def _records(self) -> Records:
        checkpoints_of(self._have)  # a 501 without checkpoints
        if self._directory is None:
            raise ApiError(501, f"not configured: {_NO_DIRECTORY}")
        return self._kept

    def start_sweeps(self) -> None:
        """Delete from now on what builds left, also those of gateways that died."""
        if self._have.checkpoints is not None and self._directory is not None:
            self._sweeper.start()

    async def close(self) -> None:
        """Fail the builds that run here."""
        await self._sweeper.close()
        await self._builder.close()

    async def wait_ready(self, sandbox: Sandbox, *, receive: Receive, until: float) -> None:
        """Wait until the template's ready command, if any, succeeds.

        Otherwise the sandbox ends, but for one that continues a pause, which the next connect finds. Raises Problem.
        """
        command = sandbox.spec.ready_command
        if command is None or has_hung_up(receive):
            return
        try:
            await readiness.wait(self._builder.commands(sandbox), command, receive=receive, until=until)
        except Problem:
            if sandbox.spec.continues is None:
                self._have.lifecycle.ends.delete(sandbox)
            raise
        if has_hung_up(receive):
            note(left=True)
            self._have.lifecycle.ends.orphans.hung_up(sandbox)

    async def request(self, body: bytes, who: Tenant) -> dict[str, Any]:
        """Begin a build, which then waits for its files and its steps."""
        asked = read(body, Requested)
        wanted = read_name(asked.name or asked.alias or "", field="name")
        if self._templates.is_operators(wanted.name, who):
            text = (
                f"name: {wanted.name!r} is a pool or an alias of the operator, which would win: use another"
            )
            raise Problem(400, text)
        if asked.min_free_disk_mb:
            text = "minFreeDiskMb: not supported here: the disk is that of the base; leave it out"
            raise Problem(400, text)
        for field, value in (("cpuCount", asked.cpu_count), ("memoryMB", asked.memory_mb)):
            if value is not None and not 0 < value < 1 << 22:
                text = f"{field}: {value} is out of range: use a positive number, or leave it out"
                raise Problem(400, text)
        tags = read_tags([*([wanted.tag] if wanted.tag else []), *(asked.tags or [])]) or [DEFAULT_TAG]
        memory = None if asked.memory_mb is None else asked.memory_mb / 1024
        build = new_build(who.name, wanted.name, tags)
        build.cpu, build.memory_gb = asked.cpu_count, memory
        try:
            await asyncio.to_thread(self._records.request, build)
            await self._sweeper.forget_former(build.template, tenant=who.name)
        except TooMany as error:
            raise Problem(429, str(error), headers=[(b"retry-after", b"60")]) from error
        note(id=build.template)
        return {
            "templateID": build.template,
            "buildID": build.id,
            "public": False,
            "names": [build.name],
            "aliases": [build.name],
            "tags": tags,
        }

    async def upload_link(self, template: str, files_hash: str, scope: Scope, who: Tenant) -> dict[str, Any]:
        """Say whether an archive is there, and where to put it."""
        found = await asyncio.to_thread(self._records.find, template, tenant=who.name)
        if found is None or not is_files_hash(files_hash):
            raise Problem(404, "the template was not found, or the hash is not 64 hexadecimal digits")
        directory = self._records.tenant_directory(template)
        present = await asyncio.to_thread(self._archives.present, directory, files_hash)
        base = base_of(scope, public_url=self._have.settings.public_url)
        return {"present": present, "url": link(self._have.tokens, Link(template, files_hash), base=base)}

    def is_upload(self, scope: Scope) -> bool:
        return upload_of(scope, self._have.tokens) is not None

    async def upload(self, scope: Scope, receive: Receive) -> None:
        """Keep the archive of a request whose link is valid. Raises ClientGone."""
        to = upload_of(scope, self._have.tokens)
        found = None if to is None else await asyncio.to_thread(self._records.of_upload, to.template)
        if to is None or found is None:
            text = "the upload link has expired: ask for another"
            raise Problem(403, text, headers=[(b"connection", b"close")])
        directory = self._records.tenant_directory(to.template)
        await self._archives.take(directory, to.files_hash, body_pieces(receive))

    async def start(self, template: str, build_id: str, body: bytes, receive: Receive, who: Tenant) -> None:
        """Begin the steps of a requested build, in a sandbox of the tenant."""
        build = await self._build(template, build_id, who)
        await self._starter.start(build, body, receive=receive, who=who)

    async def status(
        self, template: str, build_id: str, query: Mapping[str, list[str]], who: Tenant
    ) -> dict[str, Any]:
        """Return the state of a build and a part of its log."""
        offset = _number(query, "logsOffset", default=0)
        limit = min(_number(query, "limit", default=MOST_ENTRIES), MOST_ENTRIES)
        build = await self._build(template, build_id, who)
        path = self._records.log_path(build)
        found = await asyncio.to_thread(entries, path, offset=offset, limit=limit)
        document: dict[str, Any] = {
            "templateID": build.template,
            "buildID": build.id,
            "status": build.state,
            "logs": [],
            "logEntries": [each.document() for each in found],
        }
        if build.state is State.ERROR:
            document["reason"] = {"message": build.message, "logEntries": []}
            if build.step is not None:
                document["reason"]["step"] = build.step
        return document

    async def _build(self, template: str, build_id: str, who: Tenant) -> BuildRecord:
        build = await asyncio.to_thread(self._records.build, template, build_id, tenant=who.name)
        if build is None:
            raise Problem(404, "the build was not found: it is another tenant's, or ended hours ago")
        if build.state is State.ERROR and build.sandbox is not None:
            left = self._have.directory.of_tenant(build.sandbox, who.name)
            if left is not None and left.live:  # that of a gateway that died
                self._have.lifecycle.ends.delete(left)
        return build


def _number(query: Mapping[str, list[str]], name: str, *, default: int) -> int:
    text = query.get(name, [""])[0]
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Problem(400, f"{name}: must be a whole number")
    return int(text)
