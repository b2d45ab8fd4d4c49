"""Matches creates with instances: a warm instance for a create, a waiting create for a ready instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

from sandlot_contract.ids import InstanceId

from .awaited_slots import AwaitedSlots
from .demand import Seen
from .instances import Instance
from .slot import Hold, Phase
from .slots import Slots
from .starts import Ask, Start
from .supply_events import Asked
from .template_line import Waiter
from .waiting import WaitList

_OVERDUE = 3.0  # times the recent mean start time
_PLACES = 128  # of the queue that are searched for an image that the node has
_PASSED = 8  # times that later creates may go before one because of images
_PATIENCE = 30.0  # seconds for which they may go before one whose image another node has


class Matching:
    """A tenant's own pool serves only its creates, and a used instance only those of the tenant it is bound to.

    Where instances take any image, one that keeps its own serves only creates of that image, and another one first a
    create whose image its node has.

    Instances of no pool are kept for the next create for a while.
    """

    def __init__(self, *, slots: Slots, line: WaitList[Ask], seen: Seen, spare_seconds: float) -> None:
        self._slots = slots
        self._line = line
        self._seen = seen
        self._spare_seconds = spare_seconds
        self.awaited = AwaitedSlots()
        # instance of no pool -> when to destroy it, the oldest first
        self._spares: dict[InstanceId, float] = {}
        self.mean_start = 1.0  # seconds, a moving average of recent starts
        self._measured = False

    def take(self, asked: Asked) -> Hold | None:
        """Take a warm instance: of the named pool if it has one, else of any pool open to the tenant.

        One that is bound to the tenant comes first, since no other tenant can use it. One on a node to avoid serves if
        no other does.
        """
        image, pool, avoid = asked.template.image, asked.pool, asked.avoid
        take = partial(
            self._slots.take,
            self._slots.kind(asked.template),
            image=image,
            tenant=asked.tenant,
            allowed=self._allowed(asked.tenant),
            nodes=self._seen.nodes_with(image),
            held=self.awaited.not_for(image),
            lays_image=asked.lays_image,
        )
        hold = None
        for avoided in (avoid, ()) if avoid else ((),):
            if hold is None and pool is not None:
                hold = take(pool=pool, avoid=avoided)
            hold = hold or take(avoid=avoided)
        if hold is not None:
            self.forget(hold.instance.id)
        return hold

    def take_all(self, asks: Sequence[Asked], *, now: float) -> list[Hold]:
        """Take a warm instance for each of these creates; none if there is not one for every one."""
        holds: list[Hold] = []
        for asked in asks:
            if (hold := self.take(asked)) is None:
                break
            holds.append(hold)
        else:
            return holds
        for hold in holds:
            if (instance := self._slots.holds.put_back(hold)) is not None:
                self.keep(instance, now=now)  # it was warm, so no create that waits can use it
        return []

    def evict(self, key: str, *, tenant: str) -> Instance | None:
        """Choose a warm instance in the tenant's pools that is bound to another tenant, and move it to ENDING."""
        instance = self._slots.evict(key, tenant=tenant, allowed=self._allowed(tenant))
        if instance is not None:
            self.forget(instance.id)
        return instance

    def may_use(self, pool: str | None, tenant: str) -> bool:
        return pool is None or self._owner(pool) in (None, tenant)

    def estimated_wait(self, position: int, *, max_starts: int, ages: Sequence[float]) -> float:
        """Return in how many seconds a create at this place in the queue should ask again.

        `ages`: seconds since each start in progress began. Where nodes are slower than before, these tell it before the
        first of them is over: of starts that follow each other, the median is half way.
        """
        start = max(self.mean_start, 2 * median(ages) if ages else 0.0)
        return min(60.0, max(1.0, start * position / max_starts))

    @property
    def patience(self) -> float:
        """Return how long a create waits before it is overdue, in seconds."""
        return _OVERDUE * self.mean_start

    def shed(self, pool: str) -> Instance | None:
        """Remove a warm instance from this pool, preferring one of an outdated kind."""
        spec = self._seen.pool(pool)
        instance = self._slots.shed(pool, keep=self._slots.kind(spec.template) if spec is not None else None)
        if instance is not None:
            self.forget(instance.id)
        return instance

    def waiter_for(self, instance: Instance, start: Start | None, *, now: float) -> Waiter[Ask] | None:
        """Choose the create it was started for unless that left or another is overdue; else the longest waiting.

        One that the instance may serve: its tenant is the pool's owner and the one that used it before, if any.
        """
        owner = self._owner(instance.pool) if instance.pool is not None else None
        tenants = {owner, self._slots.bound_to(instance.id)} - {None}
        if start is not None:
            # Counted from the request, as `_is_overdue` does: a slow launch call must make no create overdue.
            self._count(now - start.asked_at)
            meant = start.waiter
            fits = meant is not None and meant.waiting and tenants <= {meant.tenant}
            if instance.keeps_image and meant is not None:
                fits = fits and instance.has_own(meant.template.image) and not meant.value.lays_image
            if fits and not self._is_overdue(start.key, now):
                return meant
        key = self._slots.kind(instance.template)
        if instance.keeps_image:
            waiters = self._line.of_images(key, {instance.template.image})
            fitting = (one for one in waiters if tenants <= {one.tenant} and not one.value.lays_image)
            return self._line.first_of(fitting)
        if len(tenants) > 1:
            return None
        tenant = next(iter(tenants), None)
        head = self._line.head(key, tenant=tenant)
        return self._by_image(head, instance, tenant, now=now) if head is not None else None

    def come_back(self, instance_id: InstanceId, image: str) -> Instance | None:
        """Note that a create no longer waits for this image; return the instance if it may serve another create now."""
        self.awaited.remove(instance_id, image)
        instance = self._slots.reoffer(instance_id)
        if instance is not None:
            self.forget(instance_id)
        return instance

    def overlooked(self, now: float) -> Iterator[tuple[Waiter[Ask], Instance]]:
        """Yield awaited slots that a waiting create may use by now, moved to UNREPORTED, each with that create.

        Nothing else tells the core that a node has got an image.
        """
        nodes: set[str] = set()
        for key in self._line.in_turn():
            for image in self._line.images(key):
                nodes.update(self._seen.nodes_with(image))
        for instance_id in self.awaited if nodes else ():
            slot = self._slots.get(instance_id)
            if slot is None or slot.phase is not Phase.WARM or slot.instance.node not in nodes:
                continue
            if (waiter := self.waiter_for(slot.instance, None, now=now)) is not None:
                self._slots.reoffer(instance_id)
                self.forget(instance_id)
                yield waiter, slot.instance

    def _count(self, took: float) -> None:
        # The first start replaces a lower guess: else all others that began with it would be overdue.
        weight = 1.0 if not self._measured and took > self.mean_start else 0.2
        self._measured = True
        self.mean_start += weight * (took - self.mean_start)

    def _by_image(
        self, head: Waiter[Ask], instance: Instance, tenant: str | None, *, now: float
    ) -> Waiter[Ask] | None:
        """Choose the next create whose image the node has, else one whose image no node has, else `head`.

        Every other choice has a node pull an image while another node has it already. An instance that creates wait for
        goes to no others than those of `AwaitedSlots`. No create goes before one of its tenant with a higher priority.
        """
        node = instance.node
        if node is None or instance.image == head.template.image:
            return head
        first: Waiter[Ask] | None = None
        unprepared: Waiter[Ask] | None = None
        # tenant -> the priority of the first of its creates that the instance would do for
        least: dict[str, int] = {}
        for waiter in self._line.first(head.key, tenant=tenant, limit=_PLACES):
            priority = self._line.priority(waiter.tenant, waiter.run)
            if priority < least.get(waiter.tenant, priority):
                continue
            nodes = self._seen.nodes_with(waiter.template.image)
            avoided = node in waiter.value.avoid
            if instance.image == waiter.template.image or (node in nodes and not avoided):
                break
            if not self.awaited.admits(instance.id, waiter.template.image):
                continue
            if not avoided:
                least.setdefault(waiter.tenant, priority)
            first = first or waiter
            if unprepared is None and not nodes and not avoided:
                unprepared = waiter
            if waiter is head and not self._may_pass(head, elsewhere=bool(nodes) or avoided, now=now):
                return head
        else:
            waiter = unprepared or first
            if waiter is None and instance.id in self.awaited:
                waiter = self._beyond(head.key, instance, node, tenant)
        if waiter is not None and waiter is not head:
            head.value.passed += 1
        return waiter

    def _beyond(self, key: str, instance: Instance, node: str, tenant: str | None) -> Waiter[Ask] | None:
        """Choose like `_by_image`, of the whole queue: its first places are all of images that the slot awaits."""
        images = self._line.images(key)
        there = {image for image in images if image == instance.image or node in self._seen.nodes_with(image)}
        admitted = {image for image in images if self.awaited.admits(instance.id, image)}
        waiters = self._line.of_highest_priority(
            w
            for w in self._line.of_images(key, there | admitted)
            if tenant in (None, w.tenant) and (w.template.image in admitted or node not in w.value.avoid)
        )
        at_once = (w for w in waiters if w.template.image in there and node not in w.value.avoid)
        others = (w for w in waiters if w.template.image in admitted)
        return self._line.first_of(at_once) or self._line.first_of(others)

    def _may_pass(self, head: Waiter[Ask], *, elsewhere: bool, now: float) -> bool:
        """Return whether a later create may go first; `elsewhere`: this instance would not do for the first one."""
        return head.value.passed < _PASSED or (elsewhere and now - head.value.asked_at < _PATIENCE)

    def keep(self, instance: Instance, *, now: float) -> None:
        """Keep an instance that no create needs now."""
        self._slots.wait(instance)
        if instance.pool is None:
            self._spares[instance.id] = now + self._spare_seconds

    def forget(self, instance_id: InstanceId) -> None:
        self._spares.pop(instance_id, None)

    def next_due(self) -> float | None:
        """Return when the oldest kept instance of no pool expires."""
        return next(iter(self._spares.values()), None)

    def overdue(self, now: float) -> Iterator[InstanceId]:
        """Yield the kept instances that have expired."""
        while (due := self.next_due()) is not None and due <= now:
            instance_id = next(iter(self._spares))
            del self._spares[instance_id]
            if self._slots.phase(instance_id) is Phase.WARM:
                yield instance_id

    def _is_overdue(self, key: str, now: float) -> bool:
        """Return whether the first waiter has waited much longer than starts take."""
        head = self._line.head(key)
        since = head.value.started_at if head is not None else None
        return since is not None and now - since > self.patience

    def _allowed(self, tenant: str) -> Callable[[str], bool]:
        return lambda pool: self.may_use(pool, tenant)

    def _owner(self, pool: str) -> str | None:
        """Return the tenant that owns this pool. Unused instances of a deleted pool are open to any tenant."""
        spec = self._seen.pool(pool)
        return spec.owner if spec is not None else None
