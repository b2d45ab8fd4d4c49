"""What this gateway has observed of each instance: through its own start, the pod or the sidecar's reports.

Only the gateway's ledger (core/slots.py) knows the owner of an instance and whether its sidecar has reported.
"""

from __future__ import annotations

import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, IntEnum, auto
from functools import lru_cache
from typing import Any

import msgspec
from sandlot_contract.ids import InstanceId
from sandlot_contract.names import (
    ANNOTATION_LAYS_IMAGES,
    ANNOTATION_TEMPLATE,
    LABEL_FOR,
    LABEL_KEY,
    LABEL_POOL,
)
from sandlot_contract.ports import SIDECAR_PORT
from sandlot_contract.sidecar import ENCRYPTED
from sandlot_contract.template import Template
from sandlot_kube import clock, reuse
from sandlot_kube import template as templates
from sandlot_kube.objects import Pod

from ...core.instances import Instance, Laid
from ...data.dial import split_host_port
from ...sandboxes import ForeignClaim, recovered
from ...tokens import Tokens
from .translate import from_kube
from .unplaced import Unplaced

_log = logging.getLogger(__name__)

_IMAGE_ID = re.compile(r"sha256:[0-9a-f]{64}")  # a sidecar that was taken over can report any text
_REMEMBERED = 10_000  # removed instances; without it a late report would add them again


class Source(IntEnum):
    """Where an address comes from; the greater source wins."""

    DNS = 0
    WATCH = 1
    WEBHOOK = 2


class Origin(Enum):
    """What an instance was made for."""

    UNKNOWN = auto()  # its pod has not been seen yet
    POOL = auto()
    # a Sandbox of its own name, by another gateway or by this one before its last start
    OTHERS_START = auto()
    OWN_START = auto()

    @property
    def cold(self) -> bool | None:
        """Whether the instance has a Sandbox of its own name; None: unknown yet."""
        return None if self is Origin.UNKNOWN else self is not Origin.POOL


@dataclass(frozen=True, slots=True)
class SeenPod:
    node: str | None
    placed_at: float | None  # when it was first seen on a node, on the monotonic clock
    reused: bool = False  # it runs one sandbox after the other
    ready_at: float | None = None  # Unix time by this machine: when all its containers ran


@dataclass(frozen=True, slots=True)
class SeenInstance:
    """The observations of one instance; `since` on the monotonic clock."""

    instance: Instance
    source: Source  # of its address
    origin: Origin
    since: float
    pod: SeenPod | None = None
    generation: int = 0  # the latest that its sidecar has reported
    reported: bool = False  # its sidecar has, to this gateway

    @property
    def reused(self) -> bool:
        """Whether its pod runs one sandbox after the other, as its mark or a reset shows."""
        return self.generation > 1 or (self.pod is not None and self.pod.reused)

    @property
    def node(self) -> str | None:
        return self.pod.node if self.pod is not None else None


class Instances:
    """All instances by id until they are removed. `domain` follows an instance's name in the headless Service's DNS.

    `local_time` converts the API server's time to this machine's. `image_name` returns a name of the image with this
    id, if it is known; None: every pod keeps its image. `claimed_here`: whether this gateway claims or owns it now.
    `encrypted`: sidecars speak TLS, as far as nothing tells; their pods and reports do.
    """

    def __init__(
        self,
        *,
        tokens: Tokens,
        domain: str,
        local_time: Callable[[float], float] = lambda seconds: seconds,
        image_name: Callable[[str], str | None] | None = None,
        claimed_here: Callable[[InstanceId], bool] = lambda instance_id: False,
        encrypted: bool = False,
    ) -> None:
        self._tokens = tokens
        tokens.changed.append(self._renew_tokens)
        self._local_time = local_time
        self._domain = domain
        self._image_name = image_name
        self._claimed_here = claimed_here
        self._prefix = ENCRYPTED if encrypted else ""
        self.unplaced = Unplaced()
        self._seen: dict[InstanceId, SeenInstance] = {}
        # instance id -> its address while the pod exists
        self._gone: OrderedDict[InstanceId, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def __iter__(self) -> Iterator[SeenInstance]:
        return iter(list(self._seen.values()))

    def __contains__(self, instance_id: object) -> bool:
        return instance_id in self._seen

    def get(self, instance_id: InstanceId) -> SeenInstance | None:
        return self._seen.get(instance_id)

    def is_gone(self, instance_id: InstanceId) -> bool:
        return instance_id in self._gone

    def take_address(self, instance_id: InstanceId) -> str:
        """Return a removed instance's address, '' after the first call: another pod may get it."""
        address = self._gone.get(instance_id, "")
        if address:
            self._gone[instance_id] = ""
        return address

    def add(
        self, instance_id: InstanceId, template: Template, *, origin: Origin = Origin.UNKNOWN
    ) -> SeenInstance:
        """Add an instance, at the address that DNS will have once its pod runs."""
        # The final dot skips the resolver's search path, which makes five queries of each lookup.
        address = f"{self._prefix}{instance_id}.{self._domain}.:{SIDECAR_PORT}"
        token, key_id = self._tokens.instance(instance_id), self._tokens.signing_id
        instance = Instance(instance_id, template, address, token, key_id=key_id)
        instance.keeps_image = self._image_name is not None  # until its pod says otherwise
        seen = self._seen[instance_id] = SeenInstance(instance, Source.DNS, origin, time.monotonic())
        return seen

    def remove(self, instance_id: InstanceId) -> None:
        """Remove the instance for good: later reports and watch events do not add it again."""
        seen = self._seen.pop(instance_id, None)
        if seen is not None:
            self.unplaced.forget(seen.instance.template, instance_id)
        self._gone.setdefault(instance_id, seen.instance.address if seen is not None else "")
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)

    def from_pod(self, pod: Pod) -> SeenInstance | None:
        """Add or update an instance from its pod; return None if it was removed or has no readable template."""
        instance_id = pod.instance_id
        seen = self._seen.get(instance_id)
        if seen is None:
            if instance_id in self._gone:
                return None
            try:
                template = _template(pod.metadata.annotations.get(ANNOTATION_TEMPLATE, ""))
            except msgspec.DecodeError as error:
                _log.warning("the template of pod %s cannot be read: %s", instance_id, error)
                return None
            seen = self.add(instance_id, template)
        self.unplaced.note(seen.instance.template, pod)
        node = pod.spec.node_name
        placed_at = seen.pod.placed_at if seen.pod is not None else None
        if node is not None and placed_at is None:
            placed_at = time.monotonic()
        origin = seen.origin
        if LABEL_FOR not in pod.metadata.labels:
            origin = Origin.POOL
        elif origin is not Origin.OWN_START:
            origin = Origin.OTHERS_START
        seen = self._seen[instance_id] = replace(
            seen, origin=origin, pod=SeenPod(node, placed_at, reuse.is_reused(pod), self._ready_at(pod))
        )
        if (made_at := clock.seconds(pod.metadata.creation_timestamp)) is not None:
            seen.instance.started_at = self._local_time(made_at)
        self.made_with(seen.instance, pod.metadata.labels.get(LABEL_KEY))
        seen.instance.pool = pod.metadata.labels.get(LABEL_POOL)
        seen.instance.node = node
        if self._image_name is not None:
            seen.instance.keeps_image = pod.metadata.annotations.get(ANNOTATION_LAYS_IMAGES) != "true"
        if pod.status.pod_ip is not None:
            seen = self._place(seen, _address(pod, pod.status.pod_ip), Source.WATCH)
        return seen

    def made_with(self, instance: Instance, key_id: str | None) -> None:
        """Note of which master key an instance's tokens are; None: unknown."""
        if key_id is not None and key_id != instance.key_id:
            instance.key_id = key_id
            instance.token = self._tokens.instance(instance.id, key_id)

    def _renew_tokens(self) -> None:
        """Derive tokens again, of instances whose key was unknown before."""
        for seen in self._seen.values():
            seen.instance.token = self._tokens.instance(seen.instance.id, seen.instance.key_id)

    def without_pod(self, instance_id: InstanceId) -> None:
        """Forget the pod of an instance, which is gone before it had a node."""
        if (seen := self._seen.get(instance_id)) is not None:
            self._seen[instance_id] = replace(seen, pod=None)
            self.unplaced.forget(seen.instance.template, instance_id)

    def from_state(
        self, instance_id: InstanceId, state: dict[str, Any], *, template: Template | None
    ) -> SeenInstance | None:
        """Add or update an instance from its sidecar's state; return None if its template is unknown."""
        seen = self._seen.get(instance_id)
        if seen is None:
            try:
                template = recovered(state, now=0.0).spec.template()
            except ForeignClaim:
                if template is None:
                    return None
            seen = self.add(instance_id, template)
        if not seen.reported:
            seen = self._seen[instance_id] = replace(seen, reported=True)
        generation = state.get("generation")
        if isinstance(generation, int) and generation >= seen.generation:
            # A late report of the generation that this gateway claims or owns is older than the claim's image.
            if generation > seen.generation or not self._claimed_here(instance_id):
                self._note_image(seen.instance, state.get("image"))
            if generation > seen.generation:
                seen = self._seen[instance_id] = replace(seen, generation=generation)
        address = state.get("address")
        if isinstance(address, str) and _is_reachable(address):
            seen = self._place(seen, address, Source.WEBHOOK)
        return seen

    def _note_image(self, instance: Instance, image_id: object) -> None:
        """Note the image that a claim has laid, perhaps through another gateway."""
        if self._image_name is None or (instance.laid is not None and instance.laid.id == image_id):
            return
        if not image_id:
            instance.laid = None
        elif isinstance(image_id, str) and _IMAGE_ID.fullmatch(image_id):
            instance.laid = Laid(image_id, self._image_name(image_id))

    def _ready_at(self, pod: Pod) -> float | None:
        ready = pod.condition("Ready")
        if ready is None or ready.status != "True":
            return None
        since = clock.seconds(ready.last_transition_time)
        return None if since is None else self._local_time(since)

    def _place(self, seen: SeenInstance, address: str, source: Source) -> SeenInstance:
        if source < seen.source:
            return seen
        seen.instance.address = address
        seen = self._seen[seen.instance.id] = replace(seen, source=source)
        return seen


@lru_cache(1024)
def _template(text: str) -> Template:
    """Decode a template, one object for all its pods. Raises msgspec.DecodeError."""
    return from_kube(templates.decode(text))


def _address(pod: Pod, host: str) -> str:
    address = f"[{host}]:{SIDECAR_PORT}" if ":" in host else f"{host}:{SIDECAR_PORT}"
    return ENCRYPTED + address if pod.encrypted else address


def _is_reachable(address: str) -> bool:
    """Return whether the address is usable; a sidecar that does not know its pod's address reports a wildcard."""
    try:
        host, _ = split_host_port(address.removeprefix(ENCRYPTED))
    except ValueError:
        return False
    return host not in ("0.0.0.0", "::", "*")
