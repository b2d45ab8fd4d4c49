"""SupplyCore in single orders of events: an instance or a launch that is early, late or in vain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.ready import first_come
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply import SupplyCore
from sandlot_gateway.core.supply_events import (
    Asked,
    AskId,
    Destroyed,
    Effect,
    Grant,
    Launch,
    Launched,
    LaunchRefused,
    Looked,
    Lost,
    Offered,
    QueueFull,
    Refuse,
    RoomMade,
    StartId,
    Taken,
)

from tests.gateway.supply_world import BIG, BOUNDS, ONE, OTHER, World, new_instance


def test_one_that_is_lost_before_its_launch_returns_is_not_waited_for() -> None:
    core = SupplyCore(settings=BOUNDS, slots=Slots(rank=first_come()), seen=World())
    [launch] = core.step(Asked(AskId(1), OTHER, "alpha"), 0.0)
    assert isinstance(launch, Launch)
    assert not core.step(Lost("i-1", "start_failed", "its node has no room"), 1.0)
    [second] = core.step(Launched(launch.start, "i-1"), 2.0)
    assert isinstance(second, Launch)
    assert not core.step(Lost("i-2", "start_failed", "its node has no room"), 3.0)
    told = core.step(Launched(second.start, "i-2"), 4.0)
    assert [(type(effect), str(effect.error)) for effect in told] == [(Refuse, "its node has no room")]


def test_a_launch_that_is_slow_to_return_gives_nobody_anothers_start() -> None:
    """Its record names the create that it was started for: another one would have to be written into it."""
    slots = Slots(rank=first_come())
    core = SupplyCore(settings=BOUNDS, slots=slots, seen=World())
    core.step(Asked(AskId(1), ONE, "alpha"), 0.0)
    core.step(Asked(AskId(2), ONE, "alpha"), 0.0)
    for number in (1, 2):
        core.step(Launched(StartId(number), f"i-{number}"), 2.5)
    later = Instance("i-2", ONE, "unix:/i-2", "token")
    slots.report_warm(later, 1)
    [effect] = core.step(Offered(later), 2.8)
    assert isinstance(effect, Grant)
    assert effect.ask == AskId(2)


def test_the_estimate_of_a_refusal_knows_that_starts_have_become_slow() -> None:
    """The first slow start is not over yet: by the earlier ones alone, callers would come back far too early."""
    settings = replace(BOUNDS, max_starts=2, max_waiting=10)
    core = SupplyCore(settings=settings, slots=Slots(rank=first_come()), seen=World())
    for ask in range(10):
        core.step(Asked(AskId(ask), ONE, "alpha"), 0.0)
    [effect] = core.step(Asked(AskId(10), ONE, "alpha"), 3.0)
    assert isinstance(effect, Refuse)
    assert isinstance(effect.error, QueueFull)
    assert effect.error.retry_after == 2 * 3.0 * 11 / 2


def second_of_two_is_ready(core: SupplyCore, *, after: float, at: float) -> AskId:
    """Two creates ask at the same time, and the second one's start is ready first; returns whose it becomes."""
    launches = [*core.step(Asked(AskId(1), ONE, "alpha"), at), *core.step(Asked(AskId(2), ONE, "alpha"), at)]
    for launch in launches:
        assert isinstance(launch, Launch)
        core.step(Launched(launch.start, f"i-{launch.start}"), at)
    instance = new_instance(f"i-{launches[1].start}", ONE)
    core.slots.report_warm(instance, 1)
    [effect] = core.step(Offered(instance), at + after)
    assert isinstance(effect, Grant)
    return effect.ask


def test_the_first_starts_of_a_gateway_may_all_be_slow() -> None:
    """Its guess of a second made every one of them overdue, and each create got another's start."""
    core = SupplyCore(settings=BOUNDS, slots=Slots(rank=first_come()), seen=World())
    assert second_of_two_is_ready(core, after=20.0, at=0.0) == AskId(2)


def test_a_start_that_takes_much_longer_than_others_is_replaced() -> None:
    core = SupplyCore(settings=BOUNDS, slots=Slots(rank=first_come()), seen=World())
    core.step(Asked(AskId(0), ONE, "alpha"), 0.0)
    core.step(Launched(StartId(1), "i-1"), 0.0)
    instance = new_instance("i-1", ONE)
    core.slots.report_warm(instance, 1)
    core.step(Offered(instance), 1.0)
    assert second_of_two_is_ready(core, after=20.0, at=1.0) == AskId(1)


def test_what_is_told_of_others_is_not_kept_for_ever() -> None:
    """A gateway that always has a launch under way hears of thousands of instances of pools."""
    core = SupplyCore(settings=BOUNDS, slots=Slots(rank=first_come()), seen=World())
    now, launches = 0.0, [*core.step(Asked(AskId(1), OTHER, "alpha"), 0.0)]
    for number in range(2, 200):
        now += 1
        launches += core.step(Asked(AskId(number), OTHER, "alpha", again=True), now)
        core.step(Taken(f"other-{number}"), now)
        launch = launches.pop(0)
        assert isinstance(launch, Launch)
        launches += core.step(Launched(launch.start, f"i-{number}"), now + 0.5)
        instance = new_instance(f"i-{number}", OTHER)
        core.slots.report_warm(instance, 1)
        core.step(Offered(instance), now + 0.5)
    assert len(core.starts._early) < 10


def test_a_start_that_lacks_what_only_its_kind_needs_holds_up_no_other_kind() -> None:
    core = SupplyCore(settings=BOUNDS, slots=Slots(rank=first_come()), seen=World())
    [launch] = core.step(Asked(AskId(1), BIG, "alpha"), 0.0)
    assert isinstance(launch, Launch)
    refused = LaunchRefused(launch.start, "no GPU is free", 5.0, refuse=False, only_kind=True)
    assert not core.step(refused, 0.0)
    [other] = core.step(Asked(AskId(2), ONE, "alpha"), 1.0)
    assert isinstance(other, Launch)
    assert other.template == ONE
    assert not core.step(Asked(AskId(3), BIG, "alpha"), 2.0)
    due = core.look_at()
    assert due is not None
    assert due <= 5.0
    again = core.step(RoomMade(), 3.0)
    assert [effect.template for effect in again if isinstance(effect, Launch)] == [BIG]


def test_a_refused_kind_is_tried_again_after_its_time() -> None:
    core = SupplyCore(settings=BOUNDS, slots=Slots(rank=first_come()), seen=World())
    [launch] = core.step(Asked(AskId(1), BIG, "alpha"), 0.0)
    assert isinstance(launch, Launch)
    core.step(LaunchRefused(launch.start, "no GPU is free", 5.0, refuse=False, only_kind=True), 0.0)
    assert not core.step(Looked(), 4.9)
    [again] = core.step(Looked(), 5.0)
    assert isinstance(again, Launch)


def test_creates_for_which_no_gpu_is_free_take_one_turn_at_a_time_and_none_when_a_plain_sandbox_ends() -> (
    None
):
    """Each end of any sandbox began as many starts as there are turns, all in vain, and other creates had none."""
    core = SupplyCore(settings=BOUNDS, slots=Slots(rank=first_come()), seen=World())
    gpu = replace(ONE, gpu_count=1)

    def launches(effects: Sequence[Effect]) -> list[Launch]:
        return [effect for effect in effects if isinstance(effect, Launch)]

    def refuse(launch: Launch, at: float) -> None:
        core.step(LaunchRefused(launch.start, "no GPU is free", 1.0, refuse=False, only_kind=True), at)

    begun = [launch for n in range(4) for launch in launches(core.step(Asked(AskId(n), gpu, "alpha"), 0.0))]
    assert len(begun) == BOUNDS.max_starts
    for launch in begun:
        refuse(launch, 0.0)
    plain, other = new_instance("i-plain", ONE), new_instance("i-gpu", gpu)
    assert not launches(core.step(Destroyed(plain.id, plain), 0.1))
    assert not launches(core.step(RoomMade(plain), 0.2))
    [probe] = launches(core.step(RoomMade(other), 0.3))
    assert not launches(core.step(RoomMade(other), 0.4))
    [more] = launches(core.step(Asked(AskId(9), ONE, "beta"), 0.4))
    assert more.template == ONE
    refuse(probe, 0.5)
    assert core.refusals.why(core.slots.kind(gpu)) == "no GPU is free"
    [probe] = launches(core.step(Looked(), 1.5))
    again = launches(core.step(Launched(probe.start, "i-new"), 1.6))
    assert [launch.template for launch in again] == [gpu]  # as many as there are turns
    assert core.starting == BOUNDS.max_starts
    assert core.refusals.why(core.slots.kind(gpu)) is None
