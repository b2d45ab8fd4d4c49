"""What this gateway has seen of each instance: by a start of its own, a pod, or its sidecar's word.

Whose an instance is, and whether its sidecar was heard, says the gateway's ledger alone (core/slots.py).
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, IntEnum, auto
from functools import lru_cache
from typing import Any

import msgspec
from sandlot_contract.ids import InstanceId
from sandlot_contract.names import ANNOTATION_TEMPLATE, LABEL_FOR, LABEL_POOL
from sandlot_contract.ports import SIDECAR_PORT
from sandlot_contract.template import Template
from sandlot_kube import template as templates
from sandlot_kube.objects import Pod

from ...core.instances import Instance
from ...data.dial import split_host_port
from ...sandboxes import NotOurs, recovered
from ...tokens import Tokens
from .translate import from_kube

_log = logging.getLogger(__name__)

_REMEMBERED = 10_000  # instances that were removed, so that a late word of theirs does not bring them back


class Source(IntEnum):
    """Where an address is from; a greater one is believed."""

    DNS = 0
    WATCH = 1
    WEBHOOK = 2


class Origin(Enum):
    """What an instance was made for."""

    UNKNOWN = auto()  # its pod was not seen yet
    POOL = auto()
    OTHERS_START = (
        auto()
    )  # a Sandbox of its own name, by another gateway or by this one before its last start
    OWN_START = auto()

    @property
    def cold(self) -> bool | None:
        """Whether the instance has a Sandbox of its own name; None: not known yet."""
        return None if self is Origin.UNKNOWN else self is not Origin.POOL


@dataclass(frozen=True, slots=True)
class SeenPod:
    node: str | None
    placed_at: float | None  # when it was first seen to have a node, on the monotonic clock


@dataclass(frozen=True, slots=True)
class Seen:
    """What was observed of one instance; `since` on the monotonic clock."""

    instance: Instance
    source: Source  # of its address
    origin: Origin
    since: float
    pod: SeenPod | None = None

    @property
    def node(self) -> str | None:
        return self.pod.node if self.pod is not None else None


class Instances:
    """By id, until each is given up or gone. `domain` follows an instance's name in the headless Service's DNS."""

    def __init__(self, *, tokens: Tokens, domain: str) -> None:
        self._tokens = tokens
        self._domain = domain
        self._seen: dict[InstanceId, Seen] = {}
        self._gone: OrderedDict[InstanceId, str] = OrderedDict()  # by id: the address, while the pod is there

    def __len__(self) -> int:
        return len(self._seen)

    def __iter__(self) -> Iterator[Seen]:
        return iter(list(self._seen.values()))

    def __contains__(self, instance_id: object) -> bool:
        return instance_id in self._seen

    def get(self, instance_id: InstanceId) -> Seen | None:
        return self._seen.get(instance_id)

    def is_gone(self, instance_id: InstanceId) -> bool:
        return instance_id in self._gone

    def take_address(self, instance_id: InstanceId) -> str:
        """Of one that was removed, once its pod is gone, too: another may get it. Empty when it was taken."""
        address = self._gone.get(instance_id, "")
        if address:
            self._gone[instance_id] = ""
        return address

    def add(self, instance_id: InstanceId, template: Template, *, origin: Origin = Origin.UNKNOWN) -> Seen:
        """At the address that DNS will have for it once its pod runs."""
        # The dot at the end spares the search path: with it, every look-up would be five.
        address = f"{instance_id}.{self._domain}.:{SIDECAR_PORT}"
        instance = Instance(instance_id, template, address, self._tokens.instance(instance_id))
        seen = self._seen[instance_id] = Seen(instance, Source.DNS, origin, time.monotonic())
        return seen

    def remove(self, instance_id: InstanceId) -> None:
        """No word of it, and nothing that the watch shows of its pod, brings it back."""
        seen = self._seen.pop(instance_id, None)
        self._gone.setdefault(instance_id, seen.instance.address if seen is not None else "")
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)

    def from_pod(self, pod: Pod) -> Seen | None:
        """None when the pod is none of ours, or was given up or over before."""
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
        node = pod.spec.node_name
        placed_at = seen.pod.placed_at if seen.pod is not None else None
        if node is not None and placed_at is None:
            placed_at = time.monotonic()
        origin = seen.origin
        if LABEL_FOR not in pod.metadata.labels:
            origin = Origin.POOL
        elif origin is not Origin.OWN_START:
            origin = Origin.OTHERS_START
        seen = self._seen[instance_id] = replace(seen, origin=origin, pod=SeenPod(node, placed_at))
        seen.instance.pool = pod.metadata.labels.get(LABEL_POOL)
        if pod.status.pod_ip is not None:
            seen = self._place(seen, _join(pod.status.pod_ip), Source.WATCH)
        return seen

    def from_state(
        self, instance_id: InstanceId, state: dict[str, Any], *, template: Template | None
    ) -> Seen | None:
        """By a sidecar that has told its state; None when nobody can say what template it is of."""
        seen = self._seen.get(instance_id)
        if seen is None:
            try:
                template = recovered(state, now=0.0).spec.template()
            except NotOurs:
                if template is None:
                    return None
            seen = self.add(instance_id, template)
        address = state.get("address")
        if isinstance(address, str) and _is_reachable(address):
            seen = self._place(seen, address, Source.WEBHOOK)
        return seen

    def _place(self, seen: Seen, address: str, source: Source) -> Seen:
        if source < seen.source:
            return seen
        seen.instance.address = address
        seen = self._seen[seen.instance.id] = replace(seen, source=source)
        return seen


@lru_cache(1024)
def _template(text: str) -> Template:
    """One object for all pods of a template. Raises msgspec.DecodeError."""
    return from_kube(templates.decode(text))


def _join(host: str) -> str:
    return f"[{host}]:{SIDECAR_PORT}" if ":" in host else f"{host}:{SIDECAR_PORT}"


def _is_reachable(address: str) -> bool:
    """Not what a sidecar says that does not know its pod's address."""
    try:
        host, _ = split_host_port(address)
    except ValueError:
        return False
    return host not in ("0.0.0.0", "::", "*")
