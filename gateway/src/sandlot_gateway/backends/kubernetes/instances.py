"""What this gateway knows of each instance: from a start of its own, a pod, or the sidecar's own words."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Any

import msgspec
from sandlot_contract.names import ANNOTATION_TEMPLATE, LABEL_FOR, LABEL_POOL
from sandlot_contract.ports import SIDECAR_PORT
from sandlot_contract.template import Template
from sandlot_kube import template as templates
from sandlot_kube.objects import Pod

from ...core.instances import Instance
from ...core.owners import Claim
from ...data.dial import split_host_port
from ...sandboxes import NotOurs, recovered
from ...tokens import Tokens
from .giving_up import Standing
from .translate import from_kube

_log = logging.getLogger(__name__)

_REMEMBERED = 10_000  # instances that are gone, so that a late word of theirs does not bring them back


class Source(IntEnum):
    """Where an address is from; a greater one is believed."""

    DNS = 0
    WATCH = 1
    WEBHOOK = 2


@dataclass(slots=True, eq=False)
class Entry:
    instance: Instance
    source: Source
    cold: bool | None = None  # made for a Sandbox of its own name; None: not known yet
    pod_seen: bool = False
    node: str | None = None  # where its pod is, once it has been seen
    placed_at: float | None = None  # when that was, on the monotonic clock
    made_here: bool = False  # by a start of this gateway
    heard: bool = False  # the sidecar has said what it is
    warm_since: float | None = None  # it has said that nobody has claimed it, on the monotonic clock
    claim: Claim | None = None
    over: bool = False  # its sidecar has said so
    end_told: bool = False  # its Sandbox has its end, or will have
    leaving: bool = False  # nobody shall have it (again)
    began: float = field(default_factory=time.monotonic)

    @property
    def standing(self) -> Standing:
        return Standing(claimed=self.claim is not None, heard=self.heard)


class Instances:
    """By id. `domain` is what follows an instance's name in the headless Service's DNS."""

    def __init__(self, *, tokens: Tokens, domain: str) -> None:
        self._tokens = tokens
        self._domain = domain
        self._entries: dict[str, Entry] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def get(self, instance_id: str) -> Entry | None:
        return self._entries.get(instance_id)

    def is_gone(self, instance_id: str) -> bool:
        return instance_id in self._gone

    def add(self, instance_id: str, template: Template, *, cold: bool | None = None) -> Entry:
        """At the address that DNS will have for it once its pod runs."""
        # The dot at the end spares the search path: with it, every look-up would be five.
        address = f"{instance_id}.{self._domain}.:{SIDECAR_PORT}"
        instance = Instance(instance_id, template, address, self._tokens.instance(instance_id))
        entry = self._entries[instance_id] = Entry(instance, Source.DNS, cold=cold)
        return entry

    def remove(self, instance_id: str) -> None:
        self._entries.pop(instance_id, None)
        self._gone[instance_id] = None
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)

    def from_pod(self, pod: Pod) -> Entry | None:
        """The entry of a pod, brought up to date; None when the pod is none of ours or was over before."""
        name = pod.metadata.name
        entry = self._entries.get(name)
        if entry is None:
            if name in self._gone:
                return None
            try:
                template = _template(pod.metadata.annotations.get(ANNOTATION_TEMPLATE, ""))
            except msgspec.DecodeError as error:
                _log.warning("the template of pod %s cannot be read: %s", name, error)
                return None
            entry = self.add(name, template)
        entry.pod_seen = True
        entry.node = pod.spec.node_name
        if entry.node is not None and entry.placed_at is None:
            entry.placed_at = time.monotonic()
        entry.cold = LABEL_FOR in pod.metadata.labels
        entry.instance.pool = pod.metadata.labels.get(LABEL_POOL)
        if pod.status.pod_ip is not None:
            self._place(entry, _join(pod.status.pod_ip), Source.WATCH)
        return entry

    def from_state(
        self, instance_id: str, state: dict[str, Any], *, template: Template | None
    ) -> Entry | None:
        """The entry of a sidecar that has told its state; None when nobody can say what template it is of."""
        entry = self._entries.get(instance_id)
        if entry is None:
            try:
                template = recovered(state, now=0.0).spec.template()
            except NotOurs:
                if template is None:
                    return None
            entry = self.add(instance_id, template)
        address = state.get("address")
        if isinstance(address, str) and _is_reachable(address):
            self._place(entry, address, Source.WEBHOOK)
        return entry

    def _place(self, entry: Entry, address: str, source: Source) -> None:
        if source >= entry.source:
            entry.instance.address, entry.source = address, source


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
