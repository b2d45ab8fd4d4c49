"""What the Sandbox resources show of sandboxes' lives, for the accounting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec
from sandlot_contract.ids import InstanceId
from sandlot_contract.names import ANNOTATION_REQUEST
from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube import clock, ends
from sandlot_kube.objects import Sandbox

from ...core.usage import Stay
from ...core.usage_source import RecordedStay, UsageStore
from .recorded import Recorded
from .settings import KubernetesSettings

_GIB = 1 << 30
_DELETED_KEPT = 600.0  # seconds after a minute's ends should be among the sums


class _Spec(msgspec.Struct):
    run: str | None = None


class _Request(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    started_at: float | None = None


class KubernetesUsage:
    """Follows the watch of Sandboxes; `is_watching`: whether it works now; `of`: what this gateway knows of records."""

    all_here = False

    def __init__(
        self,
        store: UsageStore,
        *,
        of: Recorded,
        is_watching: Callable[[], bool],
        settings: KubernetesSettings,
    ) -> None:
        self.store = store
        self.settles = settings.usage_settles
        self.unseen: float | None = settings.young + settings.late_record
        self.records_settle = settings.usage_records_settle
        self._in_sync_for = settings.usage_in_sync
        self._of = of
        self._is_watching = is_watching
        self._in_sync_since: float | None = None
        self._stays: dict[str, RecordedStay] = {}  # by the resource's name
        self._deleted: dict[tuple[InstanceId, int], RecordedStay] = {}

    def has_record(self, stay: Stay) -> bool | None:
        if self._of.has_record(stay.instance_id, stay.generation) or self._of.ends_with_pod(stay.instance_id):
            return True
        if _place(stay) in self._deleted:
            return True
        return False if self._is_watching() else None

    def recorded(self) -> Iterable[RecordedStay]:
        return (*self._stays.values(), *self._deleted.values())

    @property
    def in_sync(self) -> bool:
        now = time.monotonic()
        if not self._is_watching():
            self._in_sync_since = None
        elif self._in_sync_since is None:
            self._in_sync_since = now
        return self._in_sync_since is not None and now - self._in_sync_since >= self._in_sync_for

    # From the watch.

    def replaced(self, sandboxes: list[Sandbox]) -> None:
        for name in self._stays.keys() - {sandbox.metadata.name for sandbox in sandboxes}:
            self._gone(name)
        for sandbox in sandboxes:
            self.changed(sandbox)

    def changed(self, sandbox: Sandbox) -> None:
        stay = _stay(sandbox)
        if stay is None:
            self._stays.pop(sandbox.metadata.name, None)
        else:
            self._stays[sandbox.metadata.name] = stay

    def deleted(self, sandbox: Sandbox) -> None:
        self._gone(sandbox.metadata.name)

    def _gone(self, name: str) -> None:
        """Keep the end of a resource that was deleted so soon that it may not be among the sums."""
        gone = self._stays.pop(name, None)
        horizon = time.time() - self.records_settle - _DELETED_KEPT
        self._deleted = {
            place: one for place, one in self._deleted.items() if one.end is not None and one.end > horizon
        }
        if gone is not None and gone.end is not None and gone.end > horizon:
            self._deleted[_place(gone.stay)] = gone


def _place(stay: Stay) -> tuple[InstanceId, int]:
    return stay.instance_id, stay.generation


def _stay(sandbox: Sandbox) -> RecordedStay | None:
    """Return what counts of a record, or None if it has no owner, or not one since a known time."""
    spec, status = sandbox.spec, sandbox.status
    owner = spec.sandbox_id or status.sandbox_id
    if owner is None or spec.tenant is None or spec.waits or status.verdict == SandboxVerdict.GIVEN_BACK:
        return None
    try:
        request = msgspec.json.decode(
            sandbox.metadata.annotations.get(ANNOTATION_REQUEST, "{}"), type=_Request
        )
    except msgspec.DecodeError:
        request = _Request()
    begin = request.started_at or clock.seconds(status.started_at)
    if begin is None and spec.pod_name is not None:
        begin = clock.seconds(sandbox.metadata.creation_timestamp)  # the record of an older gateway's claim
    if begin is None:
        return None
    template = spec.template
    stay = Stay(
        owner,
        spec.tenant,
        request.spec.run or "",
        template.cpu,
        template.memory / _GIB,
        template.disk / _GIB,
        template.gpu_count,
        begin,
        sandbox.instance_id,
        spec.generation or 1,
        template.gpu_type or "",
    )
    ended = ends.of(sandbox)
    end = clock.seconds(ended.at) if ended is not None else None
    if end is None:
        return RecordedStay(stay, None, None) if ended is None else None
    return RecordedStay(stay, end, int(end // 60))
