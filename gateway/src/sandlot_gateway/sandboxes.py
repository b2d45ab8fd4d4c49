"""Defines the gateway's record of a sandbox, and recovers it from what sidecars and other gateways say."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.statuses import TERMINAL, Status
from sandlot_contract.template import PIDS, Template
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.holdings import Amounts, amounts
from sandlot_gateway.core.owners import Claim, PendingCreate, RecordedEnd
from sandlot_gateway.core.runs import RunId
from sandlot_gateway.core.secret_refs import SecretRef
from sandlot_gateway.data.routes import Route
from sandlot_gateway.e2b_ports import E2bPorts
from sandlot_gateway.e2b_template import E2bTemplate
from sandlot_gateway.egress import Egress
from sandlot_gateway.group_membership import GROUP_FAILED, GroupRef, GroupServices
from sandlot_gateway.verdict_reports import ending


class Spec(msgspec.Struct, gc=False, omit_defaults=True):
    """A create request as the caller wrote it, without the values of secrets."""

    name: str
    image: str
    cpu_cores: float = 1.0
    memory_gb: float = 1.0
    disk_size_gb: float = 5.0
    gpu_count: int = 0
    gpu_type: str | None = None
    runtime_class: str | None = None  # of the requested pool
    pids: int | None = None
    pool: str | None = None
    labels: list[str] = []
    run: str | None = None
    run_epoch: int | None = None  # of the lease of that run with which this ends; None: it has none
    env: dict[str, str] = {}
    secret_names: list[str] = []
    secret_refs: dict[str, SecretRef] = {}
    start_command: str | list[str] | None = None
    start_kind: Literal["string", "object"] | None = None
    run_image_command: bool = False  # its claim takes start_command from the image
    stop_signal: int | None = None  # None: the image's
    stop_grace: float | None = None  # seconds
    workdir: str | None = None
    user: str | None = None  # of commands; None: the image's
    network: Literal["full", "none"] = "full"
    egress: Egress | None = None  # None: everything that the network allows
    timeout: float | None = 3600.0  # seconds; None: no limit
    timeout_minutes: int = 60  # as the caller wrote it, -1 for no limit
    idle_timeout: float | None = None  # seconds
    vm: bool = False
    key: str | None = None  # idempotency key
    group: GroupRef | None = None
    services: GroupServices | None = None
    checkpoint: str | None = None  # checkpoint to restore
    continues: SandboxId | None = None  # the paused sandbox whose clients this one serves
    e2b: E2bTemplate | None = None
    ports: E2bPorts | None = None  # None: not created over E2B's wire, or by an earlier build
    auto_pause: bool = False  # gateways pause it some minutes before `timeout` (e2b/deadlines.py)
    ready_command: str | None = (
        None  # of a template: each start waits for it, before its caller has the sandbox
    )
    missed: str | None = None  # `WORD: why` for a cold start although a pool has this image
    extra: dict[str, Any] = {}  # team_id, advanced_configs, ...: returned unchanged

    def template(self) -> Template:
        return Template(
            image=self.image,
            cpu=self.cpu_cores,
            memory=round(self.memory_gb * (1 << 30)),
            disk=round(self.disk_size_gb * (1 << 30)),
            pids=self.pids or PIDS,
            gpu_count=self.gpu_count,
            gpu_type=self.gpu_type,
            runtime_class=self.runtime_class,
        )

    def amounts(self) -> Amounts:
        return amounts(cpu=self.cpu_cores, memory=round(self.memory_gb * (1 << 30)), gpus=self.gpu_count)


class Sandbox(msgspec.Struct, gc=False, omit_defaults=True):
    """A sandbox from its create request until its record is forgotten. Times are Unix seconds."""

    id: SandboxId
    tenant: str
    spec: Spec
    created_at: float
    updated_at: float
    status: Status = Status.PENDING
    started_at: float | None = None
    ended_at: float | None = None
    verdict: str | None = None
    message: str | None = None
    error_type: str | None = None
    reason: str | None = None
    exit_code: int | None = None
    instance_id: InstanceId | None = None
    generation: int = 1  # of the instance at the claim; the sandbox token is derived from it
    pool_hit: bool = False
    queued: float = 0.0  # seconds from the request to the begin of a start or to a warm instance
    start: float = 0.0  # seconds of the cold start; 0 from a pool
    claim: float = 0.0  # seconds of the claim
    asked_at: float = 0.0  # time of the claim request, by the clock of the gateway that sent it
    counted_by: str = ""  # name of the sums in which the gateway that claimed it counts its usage
    notes: list[str] = []
    image_digest: str | None = None  # what the name of its image stood for at the claim; None: unknown
    pending_elsewhere: bool = False  # a pending create of another gateway, which had no instance yet

    @property
    def cold_reason(self) -> str | None:
        return None if self.pool_hit else self.spec.missed

    @property
    def live(self) -> bool:
        return self.status not in TERMINAL

    @property
    def holds_key(self) -> bool:
        """Whether its idempotency key stands for it: nobody got anything of a group that came to nothing."""
        return self.live or self.spec.group is None or self.message != GROUP_FAILED

    def finish(
        self, verdict: str, *, at: float, message: str | None = None, exit_code: int | None = None
    ) -> None:
        """Record the end; the first verdict stays."""
        if not self.live:
            return
        end = ending(verdict, exit_code=exit_code)
        self.status = end.status
        self.verdict = verdict
        self.message = message
        self.error_type = end.error_type
        self.reason = end.reason
        self.exit_code = exit_code
        self.ended_at = self.updated_at = at

    def meta(self) -> dict[str, Any]:
        """Return the metadata for the claim, from which any gateway can recover this sandbox."""
        return msgspec.to_builtins(
            {
                "spec": self.spec,
                "created_at": self.created_at,
                "generation": self.generation,
                "asked_at": self.asked_at,
                "counted_by": self.counted_by,
                "pool_hit": self.pool_hit,
                "queued": round(self.queued, 6),
                "start": round(self.start, 6),
                "tenant": self.tenant,
            }
        )

    def request(self) -> dict[str, Any]:
        """Return the request for other gateways, without fields in which callers may put secrets."""
        spec = msgspec.structs.replace(
            self.spec, env={}, start_command=None, start_kind=None, ready_command=None, extra={}
        )
        times = {
            "created_at": self.created_at,
            "started_at": self.started_at,
            "queued": round(self.queued, 3),
        }
        return msgspec.to_builtins({"spec": spec, **times, "tenant": self.tenant})

    def ownership(self) -> Claim:
        """Return the claim record for the backend."""
        at = self.started_at or self.created_at
        return Claim(
            self.id,
            self.tenant,
            at=at,
            labels=tuple(self.spec.labels),
            request=self.request(),
            generation=self.generation,
        )

    def recorded_end(self) -> RecordedEnd:
        """Return the end of an ended sandbox, for other gateways."""
        return RecordedEnd(
            self.id,
            verdict=self.verdict or SandboxVerdict.SANDBOX_LOST,
            message=self.message,
            exit_code=self.exit_code,
            of_pending_create=False,
            request=self.request(),
            at=self.ended_at,
        )

    def pending_create(self) -> PendingCreate:
        """Return the pending create, for a backend that shares it with other gateways."""
        spec = self.spec
        return PendingCreate(
            self.id, self.tenant, spec.template(), labels=tuple(spec.labels), request=self.request()
        )


class _Meta(msgspec.Struct):
    spec: Spec
    created_at: float
    tenant: str
    generation: int = 1
    pool_hit: bool = False
    queued: float = 0.0
    start: float = 0.0
    asked_at: float = 0.0
    counted_by: str = ""


class ForeignClaim(ValueError):
    """Raised for a state document whose claim was not made by a Sandlot gateway."""


def owner_in(state: dict[str, Any]) -> SandboxId | None:
    """Return the owner in a state document, if it has one."""
    owner = state.get("sandbox_id")
    return SandboxId(owner) if isinstance(owner, str) else None


def recovered(state: dict[str, Any], *, now: float) -> Sandbox:
    """Recover the sandbox from a claimed sidecar's state document. Raises ForeignClaim if its metadata is invalid."""
    try:
        meta = msgspec.convert(state.get("meta"), _Meta)
        sandbox_id = msgspec.convert(state.get("sandbox_id"), SandboxId)
        instance_id = msgspec.convert(state.get("instance_id"), InstanceId)
    except msgspec.ValidationError as error:
        raise ForeignClaim(str(error)) from error
    return Sandbox(
        id=sandbox_id,
        tenant=meta.tenant,
        spec=meta.spec,
        created_at=meta.created_at,
        updated_at=now,
        status=Status.RUNNING,
        started_at=state.get("claimed_at") or meta.created_at,
        instance_id=instance_id,
        generation=meta.generation,
        asked_at=meta.asked_at,
        counted_by=meta.counted_by,
        pool_hit=meta.pool_hit,
        queued=meta.queued,
        start=meta.start,
        notes=list(state.get("notes") or []),
        image_digest=image_digest_in(state),
    )


def image_digest_in(state: dict[str, Any]) -> str | None:
    """Return the digest of the image that a state document names; None for the machine's own root."""
    image = state.get("image")
    return image if isinstance(image, str) and ":" in image else None


def from_pending_create(sandbox_id: SandboxId, request: dict[str, Any], *, now: float) -> Sandbox:
    """Return the sandbox of another gateway's pending create. Raises ForeignClaim if `request` is invalid."""
    try:
        meta = msgspec.convert(request, _Meta)
    except msgspec.ValidationError as error:
        raise ForeignClaim(str(error)) from error
    return Sandbox(
        id=sandbox_id,
        tenant=meta.tenant,
        spec=meta.spec,
        created_at=meta.created_at,
        updated_at=now,
        queued=meta.queued,
        pending_elsewhere=True,
    )


def started_in(request: dict[str, Any]) -> float | None:
    """Return when the sandbox of a request as other gateways get it became RUNNING, if that says so."""
    at = request.get("started_at")
    return float(at) if isinstance(at, int | float) else None


def pending_route(sandbox: Sandbox) -> Route:
    """Return the route of a sandbox that has no address."""
    spec = sandbox.spec
    return Route(
        sandbox_id=sandbox.id,
        tenant=sandbox.tenant,
        address="",
        token="",
        status=sandbox.status,
        verdict=sandbox.verdict,
        message=sandbox.message or (f"the sandbox has ended: {sandbox.verdict}" if sandbox.verdict else None),
        run=RunId(spec.run) if spec.run is not None and spec.run_epoch is not None else None,
    )
