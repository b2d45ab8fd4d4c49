"""The document of a claim, and whether a sidecar that accepted it has read all of it."""

from __future__ import annotations

from typing import Any

from sandlot_gateway.core.claim_images import ClaimImage
from sandlot_gateway.core.slot import Generation
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.sidecars import ClaimAnswer, ClaimOutcome

from .start_command import stop_signal


def if_held(answer: ClaimAnswer, sandbox: Sandbox) -> ClaimAnswer:
    """Reject the answer of an older sidecar that accepts a claim and ignores its egress policy, services or user."""
    if answer.outcome != ClaimOutcome.CLAIMED:
        return answer
    if sandbox.spec.egress is not None and not answer.state.get("egress"):
        return _older(answer, "holds no policy of a create")
    if sandbox.spec.services is not None and not answer.state.get("services"):
        return _older(answer, "links no services of a group")
    if sandbox.spec.user and answer.state.get("user") is None:
        return _older(answer, "runs no commands as the user of a create")
    return answer


def _older(answer: ClaimAnswer, what: str) -> ClaimAnswer:
    return ClaimAnswer(ClaimOutcome.GONE, answer.state, message=f"its sidecar is older, and {what}")


def claim_body(
    sandbox: Sandbox,
    *,
    claim: Generation,
    secrets: dict[str, str],
    token: str,
    image: ClaimImage | None,
) -> dict[str, Any]:
    spec = sandbox.spec
    template = claim.instance.template
    return {
        "sandbox_id": sandbox.id,
        "token": token,
        "tenant": sandbox.tenant,
        "env": spec.env,
        "secrets": secrets,
        "limits": {
            "cpu": template.cpu,
            "memory": template.memory,
            "pids": template.pids,
            "disk": template.disk,
        },
        "network": spec.network,
        "egress": None if spec.egress is None else spec.egress.rules(),
        "timeout": spec.timeout,
        "idle_timeout": spec.idle_timeout,
        "workdir": spec.workdir,
        "user": spec.user,
        "start_command": spec.start_command,
        "stop_signal": stop_signal(sandbox, image),
        "stop_grace": spec.stop_grace,
        "meta": sandbox.meta(),
        "restore": spec.checkpoint is not None,
        "image": None if image is None else image.document,
        "services": None if spec.services is None else spec.services.document(),
        "generation": claim.generation,
    }
