"""Waits until a sandbox that was just asked for runs, and says why one does not."""

from __future__ import annotations

from sandlot_contract.statuses import Status
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.audit.call import note
from sandlot_gateway.control.hang_ups import has_hung_up
from sandlot_gateway.control.services import Services
from sandlot_gateway.data.answers import Receive
from sandlot_gateway.sandboxes import Sandbox

from .failures import Problem

HOLD = 25.0  # seconds of one wait for a sandbox
CREATE_WAIT = 50.0  # seconds, in all: the SDK gives up after 60
_CALLER_FAULTS = (SandboxVerdict.START_FAILED, SandboxVerdict.IMAGE_PULL)


async def started(
    sandbox: Sandbox, *, receive: Receive, have: Services, hold: float = HOLD, within: float = CREATE_WAIT
) -> None:
    """Wait for a sandbox that one wait of `hold` seconds may not have seen running, `within` in all. Raises Problem."""
    if not has_hung_up(receive):  # else the create has handled it
        await have.directory.changed(sandbox.id, timeout=within - hold)
        if has_hung_up(receive):
            note(left=True)
            have.lifecycle.ends.orphans.hung_up(sandbox)
    if sandbox.status is Status.PENDING:
        why = have.lifecycle.progress(sandbox) or "no instance was ready in time"
        keyed = sandbox.spec.key is not None
        if not keyed:  # or nothing would ever ask for it
            have.lifecycle.ends.delete(sandbox)
        headers = [(b"retry-after", b"1"), (b"should-retry", b"true" if keyed else b"false")]
        raise Problem(503, f"the sandbox is still starting: {why}", headers=headers)
    if sandbox.status is not Status.RUNNING:
        status = 400 if sandbox.verdict in _CALLER_FAULTS else 503
        text = f"the sandbox did not start: {sandbox.verdict}: {sandbox.message or sandbox.reason}"
        raise Problem(status, text, headers=[(b"should-retry", b"false")])
