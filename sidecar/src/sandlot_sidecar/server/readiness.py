"""Runs a first command in a sandbox, which is ready only after that."""

from __future__ import annotations

from sandlot_contract.frames import STDERR
from sandlot_contract.verdicts import CommandVerdict

from ..core.errors import SidecarError
from .spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .ops import Ops

TIMEOUT = 30.0  # seconds for the first command of a fresh sandbox


async def run_first_command(ops: Ops, *, owned: bool) -> None:
    """Run it, in the owner's working directory if the sandbox is `owned`. Raises SidecarError."""
    spec = Spec(command="exit 0")
    spec.timeout = TIMEOUT
    if not owned:
        spec.cwd = "/"
    op, _ = ops.create(spec, op_id=None)
    op.detached = True
    await ops.watchers.wait_ended(op, timeout=TIMEOUT + 5.0)
    ops.table.drop(op)
    if op.verdict != CommandVerdict.EXITED or op.exit_code != 0:
        text = op.message or b"".join(op.log.output(STDERR)).decode("utf-8", "replace")[:500]
        raise SidecarError(f"the first command failed ({op.verdict}, exit code {op.exit_code}): {text}")
