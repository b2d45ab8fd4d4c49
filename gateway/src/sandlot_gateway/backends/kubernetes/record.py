"""The desired and the written state of one instance's Sandbox resource, and how to retry after a rejection."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.template import Template
from sandlot_kube.ends import Ended
from sandlot_kube.objects import SandboxState

from ...core.owners import Claim
from .translate import record_key, safe_name


@dataclass(slots=True, eq=False)
class Record:
    instance_id: InstanceId
    template: Template
    cold: bool | None  # a cold start's Sandbox, named like the instance; None: unknown yet
    generation: int | None = None  # of a pod that runs one sandbox after the other
    claim: Claim | None = None
    node: str | None = None
    ended: Ended | None = None
    # The sandbox of the claim, also when that claim turns out to be another instance's.
    claimed_for: SandboxId | None = None
    drop: bool = False
    created: bool = False
    claim_there: bool = False
    end_there: bool = False
    task: asyncio.Task[None] | None = None
    key: str = field(init=False)  # stays, also if the generation turns out while it is written

    def __post_init__(self) -> None:
        self.key = record_key(self.instance_id, self.generation)

    @property
    def name(self) -> str:
        return self.instance_id if self.cold or self.claim is None else safe_name(self.claim.sandbox_id)

    @property
    def turn(self) -> str:
        """The key that orders writes: the sandbox of the claim, or the instance if it is unclaimed."""
        claimed = self.claim.sandbox_id if self.claim is not None else self.instance_id
        return self.claimed_for or claimed

    @property
    def done(self) -> bool:
        if self.generation is not None and self.claim is None and not self.created:
            return True  # the pod does not need the end of a sandbox that has no record
        claimed = self.claim is None or self.claim_there
        return claimed and (self.ended is None or self.end_there) and not self.drop

    @property
    def slot(self) -> dict[str, Any]:
        """The fields of the resource's spec that name the pod and its generation."""
        generation = {} if self.generation is None else {"generation": self.generation}
        return {"podName": self.instance_id, **generation}

    @property
    def owner(self) -> dict[str, Any]:
        """The fields of the resource's spec that name the owner."""
        claim = self.claim
        if claim is None:
            return {}
        owner = {"sandboxId": claim.sandbox_id, "tenant": claim.tenant, "labels": list(claim.labels)}
        node = {} if self.node is None else {"nodeName": self.node}
        return {**owner, **node, "state": SandboxState.RUNNING}

    def reduce(self) -> tuple[str, str]:
        """Reduce the request after a rejection: first drop what the user sent, then the rejected part.

        Return what was rejected (`claim`, `end`, `removal`) and what happens to it, in words.
        """
        claim, ended = self.claim, self.ended
        if self.drop:
            self.drop = False
            return "removal", "given up"
        if claim is not None and not self.claim_there:
            if claim.labels or claim.request:
                self.claim = replace(claim, labels=(), request={})
                return "claim", "written without its labels and request"
            self.claim = None
            return "claim", "given up"
        if ended is not None and ended.message:
            self.ended = msgspec.structs.replace(ended, message=None)
            return "end", "written without its message"
        self.ended = None
        return "end", "given up"
