"""Request and response models of the sandbox routes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator
from sandlot_contract.ids import SandboxId
from sandlot_contract.stop_grace import MAX_STOP_GRACE

from sandlot_gateway.control.field_types import (
    MINUTES_MAX,
    GpuCount,
    Label,
    Lifetime,
    Minutes,
    Pids,
    RunName,
    SandboxIdText,
    Strict,
    Text,
    WholeNumber,
    WireStatus,
)
from sandlot_gateway.control.variable_checks import check_name, check_variables
from sandlot_gateway.core.secret_refs import NAME_MAX, REFS_MAX, SECRET_KEY, SECRET_NAME


class StartCommand(Strict):
    executable: Text = Field(min_length=1, max_length=4096)
    args: list[Text] = Field(default_factory=list, max_length=4096)


class SecretReference(Strict):
    """A key of a secret that the operator keeps for the tenant."""

    secret: str = Field(min_length=1, max_length=NAME_MAX, pattern=SECRET_NAME)
    key: str = Field(min_length=1, max_length=NAME_MAX, pattern=SECRET_KEY)


class CreateRequest(Strict):
    """Fields that Prime lacks are marked "(Sandlot)". null means the same as an absent field."""

    name: Text | None = Field(None, min_length=1, max_length=100, description="Generated if absent.")
    docker_image: Text | None = Field(None, min_length=1, max_length=1024, description="The image.")
    image: Text | None = Field(
        None, min_length=1, max_length=1024, description="(Sandlot) Alias of docker_image."
    )
    checkpoint_id: str | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="Start with this checkpoint's files; excludes docker_image, disk_size_gb and arch.",
    )
    arch: Literal["amd64", "arm64"] | None = Field(None, description="Must be the server's.")
    start_command: Text | list[Text] | StartCommand | None = Field(
        None, description="A string for a shell, `{executable, args}`, or (Sandlot) an argv."
    )
    run_image_command: bool | None = Field(
        None, description="(Sandlot) true: the image's ENTRYPOINT and CMD are the start command."
    )
    stop_signal: Text | WholeNumber | None = Field(
        None, description="(Sandlot) Signal that stops the start command; default the image's, else SIGTERM."
    )
    stop_grace_seconds: float | None = Field(
        None, ge=0, le=MAX_STOP_GRACE, description="(Sandlot) Seconds from that signal to SIGKILL; default 1."
    )
    cpu_cores: float | None = Field(None, ge=0.1, le=256, description="Cores; default 1.")
    memory_gb: float | None = Field(None, ge=0.03, le=4096, description="GiB; default 1.")
    disk_size_gb: float | None = Field(None, ge=0.01, le=16384, description="GiB; default 5.")
    pids: Pids | None = Field(None, description="(Sandlot) Maximum number of processes; default 1024.")
    gpu_count: GpuCount | None = Field(None, description="GPUs; default 0.")
    gpu_type: Text | None = Field(None, max_length=100, description="Default: any; only with gpu_count.")
    vm: bool | None = Field(
        None,
        description="Selects the transport of Prime's clients; default false with a string start_command, else true.",
    )
    network_access: bool | None = Field(None, description="false: no network.")
    network: Literal["full", "none"] | None = Field(None, description="(Sandlot) Overrides network_access.")
    network_allowlist: list[str] | None = Field(
        None,
        max_length=1024,
        description="Reachable destinations, as in the egress policy; [] is no network.",
    )
    network_denylist: list[str] | None = Field(
        None, max_length=1024, description="Unreachable destinations; [] is no limit."
    )
    timeout_minutes: Lifetime | None = Field(
        None,
        description="Lifetime from the start, in minutes; default 60; negative: no limit.",
    )
    idle_timeout_minutes: Minutes | None = Field(
        None, description="End after this many minutes without an op or file call."
    )
    timeout_seconds: float | None = Field(
        None, gt=0, le=MINUTES_MAX * 60, description="(Sandlot) Overrides timeout_minutes."
    )
    idle_timeout_seconds: float | None = Field(
        None, gt=0, le=MINUTES_MAX * 60, description="(Sandlot) Overrides idle_timeout_minutes."
    )
    environment_vars: dict[str, Text] | None = Field(
        None, max_length=1024, description="Set for every command."
    )
    secrets: dict[str, Text] | None = Field(
        None, max_length=1024, description="Set as variables; never returned."
    )
    secret_refs: dict[str, SecretReference] | None = Field(
        None,
        max_length=REFS_MAX,
        description="(Sandlot) Variables whose values the gateway reads from secrets.",
    )
    labels: list[Label] | None = Field(None, max_length=64, description="Labels to list and delete by.")
    team_id: str | None = Field(None, max_length=128, description="Returned unchanged; no effect.")
    region: str | None = Field(None, max_length=128, description="Not supported: a 422.")
    advanced_configs: dict[str, Any] | None = Field(None, description="Returned unchanged; no effect.")
    registry_credentials_id: str | None = Field(None, max_length=128, description="Not supported: a 422.")
    guaranteed: bool | None = Field(None, description="Not supported: true is a 422.")
    volumes: list[Any] | None = Field(None, description="Not supported: anything but [] is a 422.")
    idempotency_key: str | None = Field(
        None,
        min_length=1,
        max_length=128,
        description="Creates of a tenant with the same key return the same sandbox.",
    )
    pool: str | None = Field(
        None, min_length=1, max_length=63, description="(Sandlot) The warm pool to claim from."
    )
    run: RunName | None = Field(None, description="(Sandlot) The training run that the create is of.")
    run_id: RunName | None = Field(None, description="(Sandlot) The same, with whose lease the sandbox ends.")
    run_epoch: WholeNumber | None = Field(
        None, ge=1, description="(Sandlot) Only while the run has this holder; 422 without run_id."
    )
    workdir: Text | None = Field(
        None, min_length=1, max_length=4096, description="(Sandlot) Working directory of commands."
    )
    user: Text | None = Field(
        None, min_length=1, max_length=256, description="(Sandlot) User of commands; default the image's."
    )
    wait_seconds: float | None = Field(
        None, ge=0, le=25, description="(Sandlot) Seconds to wait for RUNNING before answering; default 10."
    )

    @model_validator(mode="after")
    def _variables(self) -> CreateRequest:
        check_variables(self.environment_vars or {}, self.secrets or {})
        for name in self.secret_refs or ():
            check_name(name, field="secret_refs")
            if name in (self.secrets or ()):
                raise ValueError(
                    f"secret_refs: {name[:80]!r} is in secrets, too: leave it out of one of the two"
                )
        return self


class GatewayAuth(BaseModel):
    """Address and token of the data plane: `{gateway_url}/{user_ns}/{job_id}` with `Authorization: Bearer {token}`."""

    token: str
    gateway_url: str
    user_ns: str
    job_id: str
    expires_at: str
    is_vm: bool


class Timings(BaseModel):
    """Durations of the create in seconds: queued, cold start, claim."""

    queued: float
    start: float
    claim: float


class SandboxResponse(BaseModel):
    """Prime's fields; those from `verdict` on are Sandlot's."""

    id: str
    name: str
    dockerImage: str
    imageDigest: str | None = Field(
        description="What the name of the image stood for when the sandbox began."
    )
    startCommand: StartCommand | str | None = Field(
        description="A string only for clients that can parse one (prime-sandboxes 0.2, sandlot)."
    )
    cpuCores: float
    memoryGB: float
    diskSizeGB: float
    diskMountPath: str
    gpuCount: int
    gpuType: str | None
    vm: bool
    networkAccess: bool
    networkAllowlist: list[str] | None
    networkDenylist: list[str] | None
    status: WireStatus
    timeoutMinutes: int = Field(description="-1: no limit.")
    idleTimeoutMinutes: int | None
    terminationReason: str | None
    environmentVars: dict[str, str]
    secrets: dict[str, str] = Field(description="Names of the secrets; every value is `***`.")
    advancedConfigs: dict[str, Any] | None
    labels: list[str]
    createdAt: str
    updatedAt: str
    startedAt: str | None
    terminatedAt: str | None
    exitCode: int | None
    errorType: str | None
    errorMessage: str | None
    userId: str | None
    teamId: str | None
    kubernetesJobId: str | None
    region: str | None
    registryCredentialsId: str | None
    pendingImageBuildId: str | None
    gatewayAuth: GatewayAuth | None = Field(None, description="In the response to create only.")
    verdict: str | None = Field(description="Why the sandbox ended; see the sidecar's contract.")
    verdictMessage: str | None
    poolHit: bool
    coldReason: str | None = Field(description="`WORD: why`, for a cold start although a pool fits.")
    timings: Timings
    notes: list[str]
    network: Literal["full", "none"]
    timeoutSeconds: float | None
    idleTimeoutSeconds: float | None
    workdir: str | None
    user: str | None
    pool: str | None
    run: str | None
    runEpoch: int | None = Field(description="The holder of its run's lease when it began; null without one.")
    group: str | None = Field(description="The group that it was created with.")
    service: str | None = Field(description="Its name for the other sandboxes of its group.")
    secretRefs: dict[str, SecretReference]
    queuePosition: int | None = Field(description="Position in the queue while PENDING; 1 is next.")
    estimatedWaitSeconds: float | None = Field(
        description="With queuePosition: in how long it may be served, as others were lately; null: unknown."
    )
    pendingMessage: str | None = Field(
        description="Progress of its image, or what its pool or its start lacks."
    )


class SandboxList(BaseModel):
    sandboxes: list[SandboxResponse]
    total: int
    page: int
    per_page: int
    has_next: bool


class Done(BaseModel):
    success: bool
    message: str


class BulkDeleteRequest(Strict):
    """Exactly one of `sandbox_ids` and `labels` (all must match), or just `user_id` or `all_users` for all."""

    sandbox_ids: list[SandboxIdText] | None = Field(None, min_length=1, max_length=500)
    labels: list[Label] | None = Field(None, min_length=1, max_length=50)
    team_id: str | None = Field(None, description="Ignored.")
    user_id: str | None = Field(None, description="Any value: a key only reaches its own tenant's sandboxes.")
    all_users: bool | None = Field(
        None, description="As user_id: a key only reaches its own tenant's sandboxes."
    )

    @model_validator(mode="after")
    def _one(self) -> BulkDeleteRequest:
        given = (self.sandbox_ids is not None) + (self.labels is not None)
        # An empty body must not delete all.
        if given == 2 or not (given or self.user_id or self.all_users):
            raise ValueError("sandbox_ids: give either sandbox_ids or labels; for all, user_id or all_users")
        return self


class BulkFailure(BaseModel):
    sandbox_id: SandboxId
    error: str


class BulkDeleteResponse(BaseModel):
    succeeded: list[str]
    failed: list[BulkFailure]
    message: str
