"""The queues of the upstreams with dials of a test's choice: who is served, who is told what, what is tried again."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from sandlot_gateway.data import connection_queues
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.dial import DialSettings, dial
from sandlot_gateway.data.errors import DialError

from tests.dataplane.queue_owner import KEY, Script, refused
from tests.dataplane.upstreams import echo
from tests.waiting import loop_turns, until


async def test_what_is_dialled_goes_to_the_first_and_is_a_sign_of_life(owner, upstream):
    server = await upstream(echo())
    one = owner()
    connection = await one.wait(Script(server.address))
    assert connection.address == KEY
    assert one.dialled == ["ok"]
    error = one.lines.none_within(KEY, 0.5)
    begin, _, ago = str(error).partition(": last sign of life ")
    assert begin == f"cannot connect to {KEY}: no connection within 0.5 s; it is slow, not dead"
    assert re.fullmatch(r"\d+\.\d s ago", ago)
    assert error.peer == "slow"
    assert one.lines.forget_old() is True
    connection.close()


async def test_nothing_is_known_of_an_upstream_that_never_answered(owner):
    one = owner(silent_for=0.0)
    assert one.lines.forget_old() is False
    error = one.lines.none_within(KEY, 2)
    assert (error.address, error.peer) == (KEY, "silent")
    assert error.reason == "no connection within 2 s; it is silent, no sign of life so far"
    one.lines.heard(KEY)
    error = one.lines.none_within(KEY, 2)
    assert (error.address, error.peer) == (KEY, "silent")
    assert error.reason == "no connection within 2 s; it has been silent for 0 s"
    assert one.lines.forget_old() is False
    assert "no sign of life" in one.lines.none_within(KEY, 2).reason


async def test_who_is_told_too_early_hears_why_the_last_attempt_failed(owner):
    one = owner()
    one.lines.heard(KEY)
    waiting = one.wait(Script(DialError(KEY, "its backlog is full")))
    await until(lambda: len(one.dialled) >= 3)
    error = one.lines.none_within(KEY, 1)
    assert error.reason.endswith(" s ago (its backlog is full)")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_an_attempt_that_fails_is_made_again_and_each_is_longer(owner, upstream, monkeypatch):
    server = await upstream(echo())
    timeouts: list[float] = []

    async def attempt(address: str, *, timeout: float, tls: object) -> Connection:
        assert address == KEY
        timeouts.append(timeout)
        if len(timeouts) == 4:
            raise refused()
        if len(timeouts) < 6:
            raise DialError(address, "no answer")
        return await dial(server.address, timeout=10.0)

    monkeypatch.setattr(connection_queues, "dial", attempt)
    one = owner()
    connection = await one.wait(None)  # type: ignore[arg-type]
    assert timeouts == [0.125, 0.375, 1.0, 1.0, 0.125, 0.375]
    assert one.dialled == ["failed"] * 5 + ["ok"]
    connection.close()


async def test_failures_in_a_row_count_for_the_pause_and_a_success_ends_the_row(owner, upstream, monkeypatch):
    server = await upstream(echo())
    counted: list[int] = []

    def no_pause(_settings: DialSettings, failures: int) -> float:
        counted.append(failures)
        return 0.0

    monkeypatch.setattr(DialSettings, "pause_after", no_pause)
    one = owner(max_dials=1)
    script = Script(refused(), refused(), refused(), server.address, refused(), server.address)
    waiting = [one.wait(script) for _ in range(2)]
    for connection in await asyncio.gather(*waiting):
        connection.close()
    assert counted == [1, 2, 3, 1]


@pytest.mark.parametrize("known_alive", [True, False])
async def test_a_refusal_is_told_after_its_time_as_it_was(owner, known_alive):
    one = owner(refused_for=0.02 if known_alive else 60.0, refused_for_others=60.0 if known_alive else 0.02)
    assert one.lines.refused_for(known_alive=known_alive) == 0.02
    with pytest.raises(DialError) as caught:
        await one.wait(Script(refused()), known_alive=known_alive)
    assert (caught.value.reason, caught.value.peer) == ("connection refused", "refusing")
    assert len(one.dialled) > 1
    assert {*one.dialled} == {"failed"}


@pytest.mark.parametrize("known_alive", [True, False])
async def test_silence_is_told_after_its_time_as_what_it_is(owner, known_alive):
    one = owner(silent_for=0.02 if known_alive else 60.0, silent_for_others=60.0 if known_alive else 0.02)
    with pytest.raises(DialError) as caught:
        await one.wait(Script(DialError(KEY, "no answer")), known_alive=known_alive)
    assert (caught.value.address, caught.value.peer) == (KEY, "silent")
    assert caught.value.reason == "it is silent, no sign of life so far (no answer)"


async def test_an_upstream_that_is_heard_of_is_tried_for_as_long_as_it_is(owner, upstream):
    """Its dials fail for longer than silence is borne, and a heartbeat came before each."""
    server = await upstream(echo())
    one = owner(silent_for=1.0)
    began = time.monotonic()

    async def slow() -> Connection:
        if time.monotonic() - began < 1.2:
            one.lines.heard(KEY)
            raise DialError(KEY, "no answer")
        return await dial(server.address, timeout=10.0)

    connection = await one.wait(slow)
    assert one.dialled[-1] == "ok"
    connection.close()


@pytest.mark.parametrize("silent_for", [120.0, 0.0])
async def test_what_no_other_attempt_can_change_is_told_to_all_at_once(owner, silent_for):
    """Also to those whose time is over with that attempt."""
    one = owner(silent_for=silent_for)
    script = Script(DialError(KEY, "not an address", final=True))
    waiting = [one.wait(script) for _ in range(3)]
    for task in waiting:
        with pytest.raises(DialError) as caught:
            await task
        assert caught.value.reason == "not an address"
    assert {*one.dialled} == {"failed"}


async def test_a_defect_of_a_dial_is_told_and_nobody_waits_for_ever(owner):
    one = owner()
    with pytest.raises(DialError) as caught:
        await one.wait(Script(ValueError("a defect")))
    assert (caught.value.address, caught.value.reason, caught.value.final) == (
        KEY,
        "ValueError: a defect",
        True,
    )
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_connection_that_is_over_already_is_a_refusal(owner, upstream):
    server = await upstream(echo())

    async def over() -> Connection:
        connection = await dial(server.address, timeout=10.0)
        connection.transport.abort()
        return connection

    one = owner(refused_for=0.0)
    with pytest.raises(DialError) as caught:
        await one.wait(over)
    assert (caught.value.address, caught.value.refused) == (KEY, True)
    assert caught.value.reason == "the peer closed the connection before it was used"


async def test_who_has_gone_when_its_connection_comes_leaves_it_to_the_next(owner, upstream):
    server = await upstream(echo())
    one = owner(max_dials=1)
    go = asyncio.Event()

    async def later() -> Connection:
        await go.wait()
        return await dial(server.address, timeout=10.0)

    first, second = one.wait(later), one.wait(later)
    await asyncio.sleep(0)
    connection = await dial(server.address, timeout=10.0)
    connection.address = KEY
    assert one.lines.serve(connection) is True
    first.cancel()  # it was served, and had no time to see it
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second is connection
    connection.close()
    assert one.lines.serve(connection) is False
    go.set()
    await until(lambda: len(one.kept) == 1)


async def test_who_has_gone_when_its_failure_comes_is_cancelled(owner):
    async def never() -> Connection:
        return await asyncio.get_running_loop().create_future()

    one = owner()
    waiting = one.wait(never)
    await loop_turns()
    one.lines.dismiss(KEY, "it has ended")
    waiting.cancel()  # it was told, and had no time to see it
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_nothing_is_kept_of_a_dial_that_is_over(owner, upstream):
    """A gateway that lives for months makes millions."""
    server = await upstream(echo())
    one = owner()
    connection = await one.wait(Script(server.address))
    await loop_turns(3)
    assert not one.lines._dials
    assert not one.lines._lines
    connection.close()


async def test_who_waits_for_an_upstream_that_has_ended_is_told_and_its_dials_end(owner):
    one = owner()
    one.lines.heard(KEY)
    begun: list[bool] = []
    ended: list[bool] = []

    async def never() -> Connection:
        begun.append(True)
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            ended.append(True)

    other = asyncio.create_task(one.lines.wait("10.0.0.8:8700", never, known_alive=True))
    waiting = [one.wait(never) for _ in range(2)]
    await until(lambda: len(begun) == 3)
    one.lines.dismiss(KEY, "it has ended")
    for task in waiting:
        with pytest.raises(DialError) as caught:
            await task
        assert (caught.value.address, caught.value.reason, caught.value.peer) == (
            KEY,
            "it has ended",
            "ended",
        )
    await until(lambda: len(ended) >= 2)
    assert "no sign of life" in one.lines.none_within(KEY, 1).reason  # another may get its address
    assert not other.done()
    await one.lines.close()
    with pytest.raises(DialError, match=r"10\.0\.0\.8:8700: the pool is closed"):
        await other
    one.lines.dismiss(KEY, "again")


async def test_closing_waits_until_its_dials_have_ended(owner):
    begun = asyncio.Event()
    ended = asyncio.Event()

    async def ends_slowly() -> Connection:
        begun.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            await loop_turns(3)
            ended.set()

    one = owner()
    waiting = one.wait(ends_slowly)
    await begun.wait()
    await one.lines.close()
    assert ended.is_set()
    with pytest.raises(DialError, match="the pool is closed"):
        await waiting
