"""What backends have for several gateways, and what they have where there is only one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec
from sandlot_contract.ids import SandboxId

from .owners import KeyAnswer, KeyQuestion, PendingCreate
from .run_tally import RunCounts
from .runs import RunId

NotesChanged = Callable[[SandboxId, dict[str, Any]], None]


class Notes(Protocol):
    """Documents about live sandboxes, shared by all gateways and removed with their sandbox."""

    def subscribe(self, told: NotesChanged) -> None:
        """Call `told` with a sandbox's id and all its notes by key after each change by any gateway.

        Subscribe before `start`; every subscriber gets every change.
        """

    def tell_again(self) -> None:
        """Call every subscriber with all notes, since what they read of them may have changed."""

    async def put(
        self, sandbox_id: SandboxId, key: str, document: dict[str, Any], *, port: int | None
    ) -> bool:
        """Store a note. `port`: reserve it; return False if another live sandbox has it. Raises BackendError."""
        ...

    async def take(self, sandbox_id: SandboxId, key: str, *, port: int | None) -> None:
        """Remove a note. Raises BackendError."""
        ...


class PeerEvents(msgspec.Struct):
    """Another gateway's events of a tenant. `cursor`: where to go on; `more`: there are more already."""

    cursor: str
    known_since: float  # Unix time from which on it learned of all
    dropped_until: float  # when it learned of the last one that it dropped
    more: bool
    events: list[msgspec.Raw]


class OtherGateways(Protocol):
    async def holder_of_key(self, question: KeyQuestion) -> KeyAnswer:
        """Ask all other gateways; return within two seconds, whether they answer or not."""
        ...

    def is_searching(self) -> bool:
        """Return whether the last claims of a dead gateway are being looked for; a question begins that."""
        ...

    def asked_by(self, gateway: str) -> None:
        """Note that the gateway with this random id lives: it may have begun, and claim from now on."""

    async def learn_claims(self, tenant: str) -> None:
        """Learn of this tenant's sandboxes that others have claimed and no record tells yet; return within three seconds."""
        ...

    async def ends_told(self, sandbox_ids: Iterable[SandboxId], *, timeout: float) -> None:
        """Wait until the others that answer have been told the ends of these, `timeout` seconds at most."""
        ...

    async def events(
        self, tenant: str, *, after: Mapping[str, str], since: Callable[[str], float]
    ) -> dict[str, PeerEvents | None]:
        """Ask all others for events, and return their answers by address; None for one that has not answered in time.

        `after`: the cursors that they gave. `since` returns, for an address, the Unix time from which on one is asked
        for what it learned of that gave none, or has begun again.
        """
        ...

    async def run_counts(self, tenant: str, run_id: RunId) -> list[RunCounts | None]:
        """Ask all others for what they counted of a run; None for one that has not answered in time.

        And one None if others may be unknown, since their addresses cannot be looked up.
        """
        ...


class OnlyGateway:
    """The part of `Backend` that is about other gateways, for a backend that has one at a time."""

    single_gateway = True
    delete_wait = 0.0
    shared_notes: Notes | None = None
    others: OtherGateways | None = None

    async def share_pending_create(self, pending_create: PendingCreate) -> None:
        """Do nothing: no other gateway could read it."""

    def pending_create_ended(self, sandbox_id: SandboxId, *, verdict: str, message: str | None) -> None:
        """Do nothing: no other gateway has it."""

    async def ends_written(self, sandbox_ids: Iterable[SandboxId], *, timeout: float) -> None:
        """Return at once: no other gateway reads them."""

    def sought(self, sandbox_id: SandboxId) -> None:
        """Do nothing: there is no other gateway to ask."""

    def may_have(self, sandbox_id: SandboxId) -> bool:
        """Return False: no other gateway can have it."""
        return False

    def missed(self, new: bool) -> None:
        """Do nothing: no other gateway can have made it."""

    def told(self, news: bytes) -> bool:
        """Reject: no other gateway can have sent it."""
        return False
