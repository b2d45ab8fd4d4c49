# This file is auto-generated from sdk/src/sandlot/_async/accounting.py by tools/async_to_sync.py: do not change it.
"""Accounting: what tenants and training runs used between two times, and the quotas of a tenant."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sandlot._protocol import accounts
from sandlot._sync.client import Client, default_client
from sandlot.accounting import Quota, UsageReport


class Accounting:
    """The usage of this key's tenant, with the role `operate` of all tenants; and its tenant's quotas."""

    def __init__(self, *, client: Client | None = None) -> None:
        self._client = client

    def usage(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        group_by: Iterable[str] = ("tenant", "run"),
        tenant: str | None = None,
    ) -> UsageReport:
        """Return what sandboxes used in the hours from `since` (default: a day before) until `until` (default: now).

        These are at most 31 days. `group_by` has some of "tenant", "run", "hour" and "day". Times need a time zone. Sandboxes that run are counted
        up to now. Raises AuthError for another tenant's usage without the role `operate`.
        """
        query = accounts.query(since=since, until=until, group_by=group_by, tenant=tenant)
        client = self._connected()
        return accounts.report(client.call("GET", f"/usage{query}"))

    def quotas(self) -> tuple[Quota, ...]:
        """Return the quotas of this key's tenant, and what is used of them now."""
        client = self._connected()
        return accounts.quotas(client.call("GET", "/user/whoami"))

    def _connected(self) -> Client:
        if self._client is None:
            self._client = default_client()
        return self._client
