"""Passes a sandbox's start and end on to the parts that count, record or forward it."""

from __future__ import annotations

from sandlot_gateway.archive import Archive
from sandlot_gateway.core.runs import RunId
from sandlot_gateway.data.expose import Exposures
from sandlot_gateway.engine.groups import Groups
from sandlot_gateway.engine.runs import Runs
from sandlot_gateway.events.journal import Journal
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.service_links import ServiceLinks
from sandlot_gateway.ssh.sessions import SshSessions
from sandlot_gateway.usage.accounts import Accounts


class SandboxNotices:
    """The listener of the directory's changes."""

    def __init__(
        self,
        *,
        accounts: Accounts,
        journal: Journal,
        runs: Runs,
        groups: Groups,
        archive: Archive,
        exposures: Exposures,
        links: ServiceLinks,
        ssh: SshSessions | None,
    ) -> None:
        self._accounts = accounts
        self._journal = journal
        self._runs = runs
        self._groups = groups
        self._archive = archive
        self._exposures = exposures
        self._links = links
        self._ssh = ssh

    def ran(self, sandbox: Sandbox) -> None:
        """Pass on that a sandbox became RUNNING."""
        self._accounts.ran(sandbox)
        self._journal.ready(sandbox)

    def ended(self, sandbox: Sandbox) -> None:
        """Pass on that a sandbox has ended."""
        self._journal.ended(sandbox)
        self._accounts.ended(sandbox)
        self._count_end(sandbox)
        self._groups.ended(sandbox)
        self._archive.append(sandbox)
        self._exposures.sandbox_ended(sandbox.id)
        self._links.sandbox_ended(sandbox.id)
        if self._ssh is not None:
            self._ssh.sandbox_ended(sandbox.id)

    def _count_end(self, sandbox: Sandbox) -> None:
        """Count the end in its run, unless another gateway does: the one that claimed it, or has its create."""
        spec = sandbox.spec
        if spec.run is None or spec.run_epoch is None or sandbox.verdict is None:
            return
        if self._accounts.is_ours(sandbox) or not (sandbox.counted_by or sandbox.pending_elsewhere):
            self._runs.tally.ended((sandbox.tenant, RunId(spec.run)), sandbox.verdict)
