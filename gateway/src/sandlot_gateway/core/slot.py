"""A slot as the ledger knows it: its phase, its owner, its tenant, and how it was lost. Plain data."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from sandlot_contract.ids import SandboxId

from .instances import Instance
from .reuse import UNBOUND, Binding


class Phase(enum.Enum):
    """The phase of a slot's current generation, as far as this gateway knows."""

    # just started, just reset, or claimed by another gateway: the next webhook decides
    UNREPORTED = enum.auto()
    WARM = enum.auto()  # ready, without an owner
    CLAIMING = enum.auto()  # granted to a create, which is asking the sidecar
    OWNED = enum.auto()
    ENDING = enum.auto()  # its owner is done, or its claim failed: being reset or removed
    GONE = enum.auto()  # lost


class ReportOutcome(enum.Enum):
    """The result of one report from a sidecar."""

    NEWS = enum.auto()
    KNOWN = enum.auto()
    LATE = enum.auto()  # older than what the ledger has, or about this gateway's own work in progress
    IMPOSSIBLE = enum.auto()  # the report gives the generation a second owner


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a slot is gone, which is also how its sandbox ended."""

    verdict: str
    message: str | None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """A snapshot of a generation and its owner, taken when a claim or an end began; the slot may move on."""

    instance: Instance
    generation: int
    sandbox_id: SandboxId
    binding: Binding  # with this owner


@dataclass(slots=True, eq=False)
class Hold:
    """A create's hold on a slot, from its grant until its claim has come to an end; only holds.py and slots.py change it.

    `claim`: once its sidecar is asked. `taken`: why the slot is no longer the create's, which is how a claim that was
    accepted has ended.
    """

    instance: Instance
    claim: Generation | None = None
    taken: Loss | None = None


@dataclass(slots=True)
class Slot:
    """One slot. `sandbox_id` is its owner, or in CLAIMING and ENDING the sandbox whose claim it is or was."""

    instance: Instance
    generation: int
    phase: Phase = Phase.UNREPORTED
    sandbox_id: SandboxId | None = None
    binding: Binding = UNBOUND
    hold: Hold | None = None  # of the create that has it: in CLAIMING, or in ENDING if it may get it back
