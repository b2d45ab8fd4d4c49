# This file is auto-generated from sdk/src/sandlot/_async/bulk.py by tools/async_to_sync.py: do not change it.
"""Many sandboxes at a time: lists them, and deletes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandlot._protocol import checks, documents
from sandlot._protocol.messages import with_query
from sandlot._sync.client import Client, default_client
from sandlot._sync.handle import Handle
from sandlot.models import DeleteResult, SandboxInfo


class Bulk(Handle):
    """Lists and deletes sandboxes; a base class of `Sandbox`."""

    @classmethod
    def list(
        cls,
        *,
        labels: Sequence[str] = (),
        run: str | None = None,
        group: str | None = None,
        active: bool | None = True,
        limit: int | None = None,
        client: Client | None = None,
    ) -> list[SandboxInfo]:
        """Return this API key's sandboxes with all `labels`, of this `run` and `group`, newest first.

        `active=None`: also ended ones.
        """
        client = client or default_client()
        found: list[SandboxInfo] = []
        page = 1
        query = "".join(f"&{with_query('', {'labels': label})[1:]}" for label in checks.labels(labels))
        if run is not None:
            query += f"&run={checks.run(run)}"
        if group is not None:
            query += f"&{with_query('', {'group': group})[1:]}"
        if active is not None:
            query += f"&is_active={str(active).lower()}"
        while True:
            per_page = 1000 if limit is None else max(1, min(1000, limit))
            document = client.call("GET", f"/sandbox?overview=true&page={page}&per_page={per_page}{query}")
            infos = (documents.sandbox_info(item) for item in document.get("sandboxes") or ())
            # A gateway that knows no runs or groups ignores the query: the caller would get, and might delete, all sandboxes.
            found += [info for info in infos if run in (None, info.run) and group in (None, info.group)]
            page += 1
            if not document.get("has_next") or (limit is not None and len(found) >= limit):
                return found if limit is None else found[:limit]

    @classmethod
    def delete_many(
        cls,
        sandbox_ids: Sequence[str] = (),
        *,
        labels: Sequence[str] = (),
        client: Client | None = None,
    ) -> DeleteResult:
        """Delete sandboxes by id, or all that have every one of `labels`."""
        if bool(sandbox_ids) == bool(labels):
            raise ValueError("give either sandbox ids or labels, not both")
        if isinstance(sandbox_ids, str):
            raise ValueError("sandbox_ids: must be a list of ids, not one string")
        ids = list(sandbox_ids)
        client = client or default_client()
        bodies: list[dict[str, Any]] = [
            {"sandbox_ids": list(ids[begin : begin + 500])} for begin in range(0, len(ids), 500)
        ]
        deleted: list[str] = []
        failed: dict[str, str] = {}
        for body in bodies or [{"labels": checks.labels(labels)}]:
            document = client.call("DELETE", "/sandbox", body=body, timeout=120.0)
            deleted += document.get("succeeded") or ()
            for item in document.get("failed") or ():
                failed[str(item.get("sandbox_id"))] = str(item.get("error"))
        return DeleteResult(deleted=tuple(deleted), failed=failed)
