"""The fields of pods, nodes and our own resources that are used; all others are skipped while decoding."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from sandlot_contract import reuse
from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.names import ANNOTATION_SIDECAR_TLS
from sandlot_contract.sidecar import ENCRYPTED

from sandlot_kube.template import Template


class _Part(msgspec.Struct, gc=False, omit_defaults=True, rename="camel", kw_only=True):
    """Base of all parts; times are RFC 3339 strings, as the API server writes them."""


class OwnerReference(_Part):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(_Part):
    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Condition(_Part):
    type: str
    status: str = "Unknown"
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class Waiting(_Part):
    reason: str | None = None
    message: str | None = None


class Running(_Part):
    started_at: str | None = None


class Terminated(_Part):
    exit_code: int = 0
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    finished_at: str | None = None


class ContainerState(_Part):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Part):
    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)


class PodPhase(StrEnum):
    """The phases of a pod that are used; there are others."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Resources(_Part):
    requests: dict[str, str] = {}


class Container(_Part):
    resources: Resources = msgspec.field(default_factory=Resources)


class Toleration(msgspec.Struct, gc=False, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class PodSpec(_Part):
    node_name: str | None = None
    # What it needs of its node, after the API server's admission.
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, str] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] = ()


class PodStatus(_Part):
    phase: str = "Pending"
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    reason: str | None = None
    message: str | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None  # its pods are being preempted for this one
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []

    @property
    def terminal(self) -> bool:
        """True if none of its containers will run again."""
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


class Pod(_Part):
    metadata: Metadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def instance_id(self) -> InstanceId:
        """Id of the instance in a sandbox's pod, which is the pod's name."""
        return InstanceId(self.metadata.name)

    @property
    def encrypted(self) -> bool:
        """Whether the sidecar speaks TLS."""
        return self.metadata.annotations.get(ANNOTATION_SIDECAR_TLS) == "true"

    @property
    def sidecar_host(self) -> str | None:
        """The sidecar's IP address, with the prefix `tls:` if it speaks TLS; None: not known yet."""
        host = self.status.pod_ip
        return ENCRYPTED + host if host is not None and self.encrypted else host

    def container(self, name: str) -> ContainerStatus | None:
        return next((status for status in self.status.container_statuses if status.name == name), None)

    def condition(self, kind: str) -> Condition | None:
        return next((item for item in self.status.conditions if item.type == kind), None)


class NodeSpec(_Part):
    unschedulable: bool = False


class NodeStatus(_Part):
    conditions: list[Condition] = []
    allocatable: dict[str, str] = {}


class Node(_Part):
    metadata: Metadata
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    def condition(self, kind: str) -> Condition | None:
        return next((item for item in self.status.conditions if item.type == kind), None)


class SandboxState(StrEnum):
    """State of a Sandbox by the gateway, in its spec."""

    PENDING = "Pending"  # a pending create
    STARTED = "Started"  # a pod has been requested
    RUNNING = "Running"  # its claim is recorded


class SandboxPhase(StrEnum):
    """Phase of a Sandbox by the controller, in its status; either of the two may write the end."""

    PENDING = "Pending"
    RUNNING = "Running"
    ENDED = "Ended"


class SandboxSpec(_Part):
    template: Template
    pod_name: InstanceId | None = None  # None: a pod is wanted
    # of the slot, in the record of a claim on a pod that is reused: its end is not the pod's
    generation: int | None = None
    node_name: str | None = None
    sandbox_id: SandboxId | None = None
    made_for: SandboxId | None = None  # the sandbox that claims it, unless `sandbox_id` is another
    tenant: str | None = None
    labels: list[str] = []
    state: str = SandboxState.PENDING  # any string is accepted: during an upgrade it may be a newer gateway's
    waiting_until: str | None = None  # until when a gateway works on it; renewed before that

    @property
    def waits(self) -> bool:
        """True for a pending create without an instance yet, which needs no pod."""
        return self.waiting_until is not None and self.pod_name is None

    @property
    def belongs_to(self) -> SandboxId | None:
        """Id of the sandbox that has claimed it, or that will."""
        return self.sandbox_id or self.made_for


class SandboxStatus(_Part):
    phase: SandboxPhase = SandboxPhase.PENDING
    pod_name: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    node_name: str | None = None
    sandbox_id: SandboxId | None = None  # the ended sandbox, if the spec only has `made_for`
    verdict: str | None = None
    message: str | None = None
    exit_code: int | None = None
    started_at: str | None = None
    ended_at: str | None = None
    ended_in: str | None = None  # its minute, by which many are deleted at once
    template_key: str | None = None
    conditions: list[Condition] = []


class Sandbox(_Part):
    metadata: Metadata
    spec: SandboxSpec
    status: SandboxStatus = msgspec.field(default_factory=SandboxStatus)

    @property
    def instance_id(self) -> InstanceId:
        """Id of its instance: the pod it names, otherwise the pod created for it under its own name."""
        return self.spec.pod_name or InstanceId(self.metadata.name)


class PoolReuse(_Part):
    policy: str = reuse.POLICY  # any string is accepted: during an upgrade it may be a newer policy
    max_uses: int = reuse.MAX_USES
    max_age: int = reuse.MAX_AGE  # seconds since the pod's creation


class SandboxPoolSpec(_Part):
    template: Template
    reuse: PoolReuse = msgspec.field(default_factory=PoolReuse)
    owner: str | None = None  # the tenant whose creates use it; None: all tenants
    size: int | None = None  # or both of the next
    min_size: int | None = None
    max_size: int | None = None


class SandboxPoolStatus(_Part):
    size: int | None = None  # the current size of an autoscaled pool
    ready: int = 0
    starting: int = 0
    replicas: int = 0  # of the scale subresource: ready and starting
    selector: str | None = None  # of the scale subresource; an autoscaler does nothing without it
    claimed: int = 0
    failures: int = 0
    message: str | None = None
    template_key: str | None = None
    observed_generation: int = 0
    conditions: list[Condition] = []


class SandboxPool(_Part):
    metadata: Metadata
    spec: SandboxPoolSpec
    status: SandboxPoolStatus = msgspec.field(default_factory=SandboxPoolStatus)
