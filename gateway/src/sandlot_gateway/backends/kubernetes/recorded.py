"""All questions of deciding code about records: what no sidecar told this gateway, so that the ledger cannot answer.

Other gateways claim and delete, the controller ends sandboxes, people delete resources: the Sandbox is the first or the
only one to show it. Whose an instance is according to its sidecar is for core/slots.py to say.
"""

from __future__ import annotations

from sandlot_contract.ids import InstanceId, SandboxId

from .known import KnownSandboxes
from .unwritten import Unwritten


class Recorded:
    """`known` is what is written, `coming` what this gateway still writes.

    `generation`: of a reused pod; None for any other, which has a single Sandbox.
    """

    def __init__(self, known: KnownSandboxes, coming: Unwritten) -> None:
        self._known = known
        self._coming = coming

    def has_record(self, instance_id: InstanceId, generation: int) -> bool:
        """Return whether this generation's claim is written or being written: then its end is, too."""
        return (
            self._known.of_pod(instance_id, generation) is not None
            or self._coming.get(instance_id, generation) is not None
        )

    def sandbox_has_end(self, sandbox_id: SandboxId) -> bool:
        """Return whether the end of this sandbox is written, so that no better reason for it will come."""
        known = self._known.get(self._known.name_of(sandbox_id) or "")
        return known is not None and known.ended is not None

    def without_end(self, instance_id: InstanceId, generation: int) -> list[int]:
        """Return the earlier generations whose record lacks its end, which is due: the pod has been reset since."""
        return [
            known.generation
            for known in self._known.before(instance_id, generation)
            if known.generation is not None and not self.has_end(instance_id, known.generation)
        ]

    def ends_with_pod(self, instance_id: InstanceId) -> bool:
        """Return whether the pod has, or gets, a record whose end is the pod's: then it must not be reused."""
        known = self._known.of_pod(instance_id)
        return (known is not None and known.generation is None) or self._coming.get(instance_id) is not None

    def has_end(self, instance_id: InstanceId, generation: int | None = None) -> bool:
        """Return whether the end is written or being written, so that no second one is.

        The ledger forgets ended instances, and its ENDING does not tell a sandbox that ended from a claim that failed.
        """
        known = self._known.of_pod(instance_id, generation)
        record = self._coming.get(instance_id, generation)
        return (known is not None and known.ended is not None) or (
            record is not None and record.ended is not None
        )

    def has_owner(self, instance_id: InstanceId) -> bool:
        """Return whether the owner is written or being written, so that its instance is not ended as unclaimed.

        Another gateway's claim may never reach this one's ledger: the sidecar reports to one gateway, and may be dead.
        """
        record = self._coming.get(instance_id)
        return self.is_claimed(instance_id, 0) or (record is not None and record.claim is not None)

    def is_claimed(self, instance_id: InstanceId, generation: int) -> bool:
        """Return whether the owner of this generation or of a later one is written.

        The record of another gateway's claim can arrive before the sidecar's older report that it is warm.
        """
        known = self._known.of_pod(instance_id)
        if known is None or not known.claimed:
            return False
        return known.generation is None or known.generation >= generation

    def exists(self, instance_id: InstanceId) -> bool:
        """Return whether the instance has a Sandbox: the controller deletes a cold start's pod without one."""
        return self._known.of_pod(instance_id) is not None

    def is_made_for_one(self, instance_id: InstanceId) -> bool:
        """Return whether a gateway started it for one sandbox: the Sandbox alone tells other gateways."""
        known = self._known.of_pod(instance_id)
        return known is not None and known.made_for is not None

    def was_deleted(self, instance_id: InstanceId) -> bool:
        """Return whether a claimed instance has no Sandbox and gets none: a user deleted it."""
        record = self._coming.get(instance_id)
        return self._known.of_pod(instance_id) is None and (record is None or record.claim is None)
