"""What the service of checkpoints needs of a store, whatever keeps the files: a directory or a bucket.

All methods block, and raise OSError when the store fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sandlot_gateway.checkpoints.checkpoint import Checkpoint


class Writing(Protocol):
    """An archive that is being written. Until it is closed, readers see that its writer is alive."""

    @property
    def size(self) -> int:
        """Bytes that it adds to the store so far, as far as is known: less what earlier checkpoints have."""
        ...

    def write(self, data: bytes) -> None:
        """Write a piece. Raises StoreFull, Deleted."""
        ...

    def close(self) -> None:
        """Be its writer no longer, as when the process dies; a second call does nothing."""
        ...

    def discard(self) -> None:
        """Give up what is written, and close."""
        ...


class OpenArchive(Protocol):
    """An archive that is open for reading."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most `size`; empty at the end. Raises Damaged, and FileNotFoundError if it was deleted meanwhile."""
        ...

    def close(self) -> None: ...


class CheckpointStore(Protocol):
    """Checkpoints that all gateways share. A tenant's DURABLE ones may expire: see StoreLimits."""

    def check(self) -> None:
        """Find out whether the store can be used; one that does not answer now is asked later. Raises StoreError."""
        ...

    def get(self, checkpoint_id: str) -> Checkpoint | None: ...

    def all(self) -> list[Checkpoint]:
        """Return all checkpoints, oldest first."""
        ...

    def deleted(self) -> list[Checkpoint]:
        """Return deleted checkpoints whose files are still there, since a gateway writes them."""
        ...

    def named(self, tenant: str, name: str) -> list[Checkpoint]:
        """Return the tenant's checkpoints with a name, in the order of their completion, incomplete ones last."""
        ...

    def begin(self, checkpoint: Checkpoint) -> Writing:
        """Write the document, and begin the archive. Raises StoreFull, Occupied."""
        ...

    def finish(self, checkpoint: Checkpoint, part: Writing) -> None:
        """Make a complete archive durable, mark its checkpoint DURABLE, and release it. Raises StoreFull, Deleted."""
        ...

    def release(self, checkpoint: Checkpoint, part: Writing) -> None:
        """Stop writing; what was deleted meanwhile loses its files. A second call does nothing."""
        ...

    def fail(self, checkpoint: Checkpoint, error: str) -> None:
        """Mark a checkpoint that is being written FAILED. Raises Deleted."""
        ...

    def open(self, checkpoint: Checkpoint) -> OpenArchive:
        """Open the archive of a DURABLE checkpoint. Raises FileNotFoundError if it was deleted, and Damaged."""
        ...

    def delete(self, checkpoint: Checkpoint) -> None:
        """Delete a checkpoint, not a later one with its id; the files of one that a gateway writes go when that ends."""
        ...

    def update(self, checkpoint: Checkpoint) -> None:
        """Write the document of a checkpoint again, unless it was deleted."""
        ...

    def revoke(self, checkpoint: Checkpoint, error: str) -> None:
        """Delete the archive of a DURABLE checkpoint that is still there; it is FAILED from then on, and says why."""
        ...

    def used(self) -> int:
        """Measure and return the bytes of all packs, including those being written."""
        ...

    def usage(self) -> Mapping[str, int]:
        """Return the bytes of each tenant's packs, including those being written, as measured lately."""
        ...

    def sweep(self) -> None:
        """Delete what dead gateways have left and no document names."""
        ...

    def expire(self) -> float | None:
        """Delete what has expired; return when the next checkpoint does."""
        ...

    def close(self) -> None:
        """Give up connections."""
        ...
