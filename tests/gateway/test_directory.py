"""The directory: order, labels, paging, forgetting, and its size with 10,000 sandboxes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot_contract.new_ids import new_sandbox_id
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox, Spec

from tests.waiting import loop_turns


def sandbox(
    number: int, *, tenant: str = "t", labels: list[str] | None = None, key: str | None = None
) -> Sandbox:
    spec = Spec(name=f"n{number}", image="host", labels=labels or [], key=key)
    at = 1000.0 + number
    return Sandbox(id=f"sb-{number}", tenant=tenant, spec=spec, created_at=at, updated_at=at)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1000), st.sampled_from("tu"), st.sets(st.sampled_from("abc")), st.booleans()
        ),
        max_size=50,
        unique_by=lambda entry: entry[0],
    ),
    st.sets(st.sampled_from("abc")),
    st.sampled_from([None, True, False]),
    st.integers(1, 4),
    st.integers(1, 10),
)
@settings(deadline=None)
def test_listing_is_what_a_plain_sort_gives(entries, labels, active, page, per_page) -> None:
    directory = Directory(clock=lambda: 5000.0)
    made = []
    for number, tenant, own, ends in entries:
        made.append(sandbox(number, tenant=tenant, labels=sorted(own)))
        directory.add(made[-1])
        if ends:
            directory.end(made[-1], verdict="deleted")
    wanted = [
        one
        for one in sorted(made, key=lambda one: -one.created_at)
        if one.tenant == "t" and labels <= set(one.spec.labels) and active in (None, one.live)
    ]
    found = directory.list(tenant="t", page=page, per_page=per_page, labels=labels, active=active)
    assert found.sandboxes == wanted[(page - 1) * per_page : page * per_page]
    assert found.total == len(wanted)
    assert found.has_next is (len(wanted) > page * per_page)
    assert directory.holdings.of("t").sandboxes == sum(one.live for one in made if one.tenant == "t")


def test_ended_ones_are_forgotten_by_age_and_by_number() -> None:
    now = 5000.0
    directory = Directory(keep=100.0, limit=3, clock=lambda: now)
    for number in range(6):
        directory.add(sandbox(number, labels=["l"], key=f"k{number}"))
        if number < 5:
            one = directory.get(f"sb-{number}")
            assert one is not None
            directory.end(one, verdict="idle")
    assert directory.get("sb-1") is None
    assert directory.by_key("t", "k1") is None
    assert directory.list(tenant="t", labels=["l"]).total == 4
    now += 101
    last = directory.get("sb-5")
    assert last is not None
    directory.end(last, verdict="deadline")
    assert directory.list(tenant="t").sandboxes == [last]
    assert last.status == "TIMEOUT"


async def test_waiting_ends_with_the_change_and_with_the_time() -> None:
    directory = Directory()
    one = sandbox(1)
    directory.add(one)
    waiting = asyncio.create_task(directory.wait_ready("sb-1", 5.0))
    await loop_turns()
    one.instance_id = "i-1"
    directory.running(one, address="unix:/x", token="secret")
    route = await waiting
    assert route is not None
    assert (route.status, route.address) == ("RUNNING", "unix:/x")
    assert "secret" not in repr(route)
    directory.end(one, verdict="oom", message="8 GiB")
    ended = directory.find("sb-1")
    assert ended is not None
    assert (ended.status, ended.verdict, ended.message, ended.token) == ("ERROR", "oom", "8 GiB", "")
    other = sandbox(2)
    directory.add(other)
    began = time.monotonic()
    pending = await directory.wait_ready("sb-2", 0.05)
    assert pending is not None
    assert pending.status == "PENDING"
    assert time.monotonic() - began >= 0.04
    assert await directory.wait_ready("unknown", 5.0) is None


async def test_a_sandbox_that_another_gateway_has_just_made_is_waited_for_longer() -> None:
    directory = Directory(patience=0.02, clock=lambda: 1000.0)
    for unknown, least in (("no id", 0.0), (new_sandbox_id(10.0), 0.02), (new_sandbox_id(990.0), 0.15)):
        began = time.monotonic()
        await directory.all_appear([unknown, unknown])
        assert least <= time.monotonic() - began + 0.005
        assert directory.get(unknown) is None
        assert directory.may_come(unknown) is (least == 0.15)
    late = new_sandbox_id(999.5)
    waiting = asyncio.create_task(directory.appear(late))
    await loop_turns()
    spec = Spec(name="late", image="host")
    directory.add(Sandbox(id=late, tenant="t", spec=spec, created_at=999.5, updated_at=999.5))
    await waiting
    assert directory.get(late) is not None
    assert not directory.may_come(late)
    assert not Directory(clock=lambda: 1000.0).may_come(new_sandbox_id(990.0))  # no other gateway makes any


async def test_who_hangs_up_ends_no_others_wait_and_hides_no_later_one() -> None:
    sought: list[str] = []
    directory = Directory(patience=60.0, clock=lambda: 1000.0, sought=sought.append)
    unknown = new_sandbox_id(999.5)
    for searches in (1, 2):  # the one that comes after all have hung up looks for it again
        leaving = asyncio.create_task(directory.appear(unknown))
        staying = asyncio.create_task(directory.appear(unknown))
        await loop_turns()
        leaving.cancel()
        await asyncio.wait([leaving])
        assert sought == [unknown] * searches
        if searches == 1:
            staying.cancel()
            await asyncio.wait([staying])
    spec = Spec(name="late", image="host")
    directory.add(Sandbox(id=unknown, tenant="t", spec=spec, created_at=999.5, updated_at=999.5))
    await asyncio.wait_for(staying, 10)


async def test_a_sandbox_wakes_who_still_waits_for_it_when_another_has_given_it_up() -> None:
    now = 1061.0
    directory = Directory(patience=0.5, clock=lambda: now)
    unknown = new_sandbox_id(1000.0)
    brief = asyncio.create_task(directory.appear(unknown))
    await loop_turns()
    now = 1059.0  # the clock was set back: the sandbox is new, and waited for longer
    long = asyncio.create_task(directory.appear(unknown))
    await brief
    spec = Spec(name="late", image="host")
    directory.add(Sandbox(id=unknown, tenant="t", spec=spec, created_at=1000.0, updated_at=1000.0))
    await asyncio.wait_for(long, 2.5)


_MANY = """
import os, resource, time
import sandlot_gateway.app
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox, Spec
directory = Directory()
for number in range(10_000):
    spec = Spec(name=f"sandbox-{number}", image="host", labels=[f"run-{number % 10}", f"env-{number % 7}"],
                env={"SEED": str(number), "PATH_TO_DATA": "/data/" + str(number)}, key=os.urandom(16).hex())
    one = Sandbox(id=f"sb-{number:020d}", tenant="t", spec=spec, created_at=number + .5, updated_at=number + .5,
                  instance_id=f"i-{number:016x}", notes=["limits: no writable cgroup"], claim=0.001 * number)
    directory.add(one)
    directory.running(one, address=f"unix:/run/sandlot/instances/{number}/sidecar.sock", token=os.urandom(24).hex())
times = []
for page in (1, 100, 200):
    for labels in ((), ("run-3",), ("run-3", "env-2")):
        began = time.process_time()
        directory.list(tenant="t", page=page, labels=labels)
        times.append(time.process_time() - began)
rss = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
print(rss, max(times))
"""


def test_ten_thousand_are_small_and_quick() -> None:
    out = subprocess.run(
        [sys.executable, "-c", _MANY], capture_output=True, text=True, check=True, timeout=60
    )
    rss, slowest = (float(word) for word in out.stdout.split())
    assert rss < 150e6, f"{rss / 1e6:.0f} MB with 10,000 sandboxes"
    assert slowest < 0.05, f"a page took {slowest * 1000:.1f} ms"


def test_threads_may_ask_for_the_live_sandboxes_while_the_loop_changes_them() -> None:
    directory, over = Directory(), threading.Event()
    for number in range(2000):
        directory.add(sandbox(number))

    def change() -> None:
        number = 2000
        while not over.is_set():
            one = sandbox(number := number + 1)
            directory.add(one)
            directory.drop(one)

    changing = threading.Thread(target=change)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    changing.start()
    try:
        for _ in range(200):
            assert len(directory.live()) >= 2000
    finally:
        over.set()
        changing.join()
        sys.setswitchinterval(interval)


async def test_who_waits_in_the_background_rests_also_in_a_drain() -> None:
    """A follower that asks again after each wait would take all of the loop."""
    directory = Directory()
    one = sandbox(1)
    directory.add(one)
    directory.release()
    await directory.changed(one.id, timeout=60.0)
    waiting = asyncio.create_task(directory.changed(one.id, timeout=60.0, background=True))
    await loop_turns()
    assert not waiting.done()
    directory.end(one, verdict="deleted")
    assert await waiting is one
