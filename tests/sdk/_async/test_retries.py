"""How often and how long the client tries again: real requests, and a clock of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sandlot import (
    AsyncClient,
    AsyncSandbox,
    Busy,
    ConnectionFailed,
    DiskFull,
    NotFound,
    SandboxLost,
    ServerError,
)
from sandlot._async import client as client_module
from sandlot._async import commands

from tests.ports import free_port
from tests.sdk._async.retrying import WINDOW, Clock, run
from tests.sdk.service.faults import Fault
from tests.sdk.service.server import Service

FULL = {"error": "busy", "message": "full"}
LOST = {"/exec": Fault("/exec", refuse=True), "/ops": Fault("/ops", refuse=True)}


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("route", ["/exec", "/ops"])
async def test_a_busy_server_is_asked_again_when_it_wants_to_be_for_ten_minutes(
    patient: AsyncSandbox, service: Service, clock: Clock, route: str, status: int
) -> None:
    service.faults.extend(
        Fault(route, status=status, body=FULL, headers={"Retry-After": "40"}) for _ in range(11)
    )
    assert await run(patient, route) == "done\n"
    assert len(service.calls(route, "POST")) == 12
    assert len(clock.slept) == 11
    assert all(30.0 <= seconds <= 50.0 for seconds in clock.slept)


@pytest.mark.parametrize("route", ["/exec", "/ops"])
async def test_a_server_that_is_busy_for_longer_is_told_with_what_it_said(
    patient: AsyncSandbox, service: Service, clock: Clock, route: str
) -> None:
    service.faults.extend(
        Fault(route, status=503, body=FULL, headers={"Retry-After": "40"}) for _ in range(40)
    )
    with pytest.raises(Busy, match="full") as caught:
        await run(patient, route)
    assert (caught.value.status, caught.value.retry_after) == (503, 40)
    assert 500.0 < sum(clock.slept) <= 600.0


@pytest.mark.parametrize("body", [{"error": "internal", "message": "broken"}, {"error": "internal"}])
@pytest.mark.parametrize("route", ["/exec", "/ops"])
async def test_a_server_that_fails_gets_the_time_of_a_lost_one(
    patient: AsyncSandbox, service: Service, clock: Clock, route: str, body: dict[str, object]
) -> None:
    service.faults.extend(Fault(route, status=503, body=body) for _ in range(40))
    with pytest.raises(ServerError, match=body.get("message", "internal")):  # type: ignore[call-overload]
        await run(patient, route)
    assert 2.0 < sum(clock.slept) <= WINDOW


@pytest.mark.parametrize("route", ["/exec", "/ops"])
async def test_a_refusal_that_says_no_more_than_its_status_is_a_refusal(
    patient: AsyncSandbox, service: Service, clock: Clock, route: str
) -> None:
    """Its body ends too early: the rest of it, and with it the name of the error, is never known."""
    service.faults.append(Fault(route, status=503, cut=3, headers={"Retry-After": "9"}))
    assert await run(patient, route) == "done\n"
    assert len(service.calls(route, "POST")) == 2


async def test_a_refusal_whose_body_never_comes_is_a_refusal(
    patient: AsyncSandbox, service: Service, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "REFUSAL_SILENCE", 0.05)
    service.faults.append(Fault("/ops", status=503, hold=True))
    assert await run(patient, "/ops") == "done\n"
    assert len(service.calls("/ops", "POST")) == 2


async def test_an_error_that_is_cut_off_is_told_by_its_status(
    patient: AsyncSandbox, service: Service
) -> None:
    service.faults.append(Fault("/ops", status=404, cut=3))
    with pytest.raises(NotFound, match="HTTP 404") as caught:
        await run(patient, "/ops")
    assert caught.value.status == 404


@pytest.mark.parametrize("route", ["/exec", "/ops"])
async def test_a_sandbox_that_is_lost_is_told_with_its_name(
    patient: AsyncSandbox, service: Service, clock: Clock, route: str
) -> None:
    gone = {"error": "sandbox_not_found", "verdict": "oom", "message": "gone"}
    service.faults.append(Fault(route, status=502, body=gone))
    with pytest.raises(SandboxLost, match="gone") as caught:
        await run(patient, route)
    assert (caught.value.sandbox_id, caught.value.verdict) == (patient.id, "oom")
    assert clock.slept == []


@pytest.mark.parametrize("route", ["/exec", "/ops"])
async def test_an_error_that_no_other_attempt_can_change_is_told_at_once(
    patient: AsyncSandbox, service: Service, clock: Clock, route: str
) -> None:
    service.faults.append(Fault(route, status=500, body={"error": "oops", "message": "a defect"}))
    with pytest.raises(ServerError, match="a defect"):
        await run(patient, route)
    assert clock.slept == []


@pytest.mark.parametrize("route", ["/exec", "/ops"])
async def test_a_server_that_loses_each_connection_is_told_after_the_window(
    patient: AsyncSandbox, service: Service, clock: Clock, route: str
) -> None:
    service.faults.extend([LOST[route]] * 40)
    with pytest.raises(ConnectionFailed) as caught:
        await run(patient, route)
    assert caught.value.sent is True
    assert caught.value.__cause__ is not None
    assert str(caught.value) == str(caught.value.__cause__) != ""
    assert 2.0 < sum(clock.slept) <= WINDOW


@pytest.mark.parametrize("route", ["/exec", "/ops"])
async def test_an_attempt_that_held_for_long_begins_the_window_anew(
    patient: AsyncSandbox, service: Service, clock: Clock, route: str
) -> None:
    clock.per_look = client_module.LONG_ATTEMPT + 0.5
    service.faults.extend([LOST[route]] * 20)
    assert await run(patient, route) == "done\n"
    assert len(service.calls(route, "POST")) == 21
    clock.per_look = client_module.LONG_ATTEMPT
    service.faults.extend([LOST[route]] * 20)
    with pytest.raises(ConnectionFailed):
        await run(patient, route)


async def test_a_server_that_never_answered_is_given_up_soon(clock: Clock) -> None:
    async with AsyncClient(url="http://127.0.0.1:1", api_key="k") as client:
        with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1") as caught:
            await AsyncSandbox.list(client=client)
    assert caught.value.sent is False
    assert 0.5 < sum(clock.slept) <= 2.0


@pytest.mark.parametrize("first", ["list", "stream"])
async def test_a_server_that_has_answered_once_and_went_away_gets_the_whole_window(
    clock: Clock, tmp_path: Path, first: str
) -> None:
    async with AsyncClient(url="http://127.0.0.1:1", api_key="k", retry_for=20.0) as client:
        with Service(tmp_path, port=free_port()) as service:
            client._url, client._api_key = service.url, service.api_key
            box = await AsyncSandbox.create(client=client)
            if first == "stream":
                client._answered = False
                await run(box, "/ops")
        for route in ("/exec", "/ops"):
            clock.slept.clear()
            with pytest.raises(ConnectionFailed) as caught:
                await run(box, route)
            assert caught.value.sent is False
            assert 10.0 < sum(clock.slept) <= 20.0


async def test_what_may_run_twice_is_not_sent_twice(
    patient: AsyncSandbox, service: Service, clock: Clock
) -> None:
    service.faults.append(Fault("/reset", lose=True))
    with pytest.raises(ConnectionFailed):
        await patient.reset()
    assert len(service.calls("/reset")) == 1
    service.faults.append(Fault("/reset", status=504, body={"error": "timeout"}))
    with pytest.raises(ServerError, match="timeout"):  # it may have begun before the time was over
        await patient.reset()
    assert len(service.calls("/reset")) == 2
    service.faults.append(Fault("/reset", status=503, body=FULL))
    await patient.reset()
    assert len(service.calls("/reset")) == 4


async def test_what_may_run_twice_is_not_sent_twice_to_be_streamed_either(
    patient: AsyncSandbox, service: Service, clock: Clock
) -> None:
    service.faults.append(Fault("/exec", status=504, body={"error": "timeout"}))
    with pytest.raises(ServerError, match="timeout"):
        await patient._plane.open("POST", "/exec", safe=False)
    assert len(service.calls("/exec")) == 1


@pytest.mark.parametrize("route", ["/exec", "/ops"])
async def test_a_closed_client_tries_nothing_again(service: Service, clock: Clock, route: str) -> None:
    client = AsyncClient(url=service.url, api_key=service.api_key)
    box = await AsyncSandbox.create(client=client)
    await client.aclose()
    with pytest.raises(ConnectionFailed, match="this client is closed"):
        await run(box, route)
    assert clock.slept == []


async def test_what_is_undone_is_not_sent_again_to_a_busy_server(
    patient: AsyncSandbox, service: Service, clock: Clock
) -> None:
    service.faults.append(Fault(patient.id, status=503, body=FULL))
    with pytest.raises(Busy, match="full"):
        await patient.client.call("GET", f"/sandbox/{patient.id}", patience=5.0)
    service.faults.append(Fault(patient.id, refuse=True))
    await patient.client.call("GET", f"/sandbox/{patient.id}", patience=5.0)
    assert len(service.calls(patient.id, "GET")) == 3


async def test_a_command_with_a_limit_is_not_sent_after_its_time(
    patient: AsyncSandbox, service: Service, clock: Clock
) -> None:
    service.faults.extend(
        Fault("/exec", status=503, body=FULL, headers={"Retry-After": "20"}) for _ in range(25)
    )
    with pytest.raises(Busy):
        await patient.exec("true", timeout=10.0)
    assert 250.0 < sum(clock.slept) <= 10.0 + commands.EXEC_SLACK


async def test_an_upload_begins_at_its_first_byte_each_time(
    patient: AsyncSandbox, service: Service, tmp_path: Path
) -> None:
    (tmp_path / "big").write_bytes(b"z" * 300_000)
    service.faults.extend([Fault("/files", refuse=True), Fault("/files", status=503, body=FULL)])
    assert await patient.files.upload(tmp_path / "big", "/big") == 300_000
    sent = service.calls("/files", "PUT")
    assert [len(one.body) for one in sent] == [300_000] * 3
    assert [one.headers.get("content-length") for one in sent] == ["300000"] * 3


async def test_a_body_that_can_be_had_once_is_sent_once(patient: AsyncSandbox, service: Service) -> None:
    """Also where the server is only busy: it may have taken a part of it, and a second attempt would send the rest."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"first,"
        yield b"second"

    service.faults.append(Fault("/files", status=503, body=FULL))
    with pytest.raises(Busy, match="full"):
        await patient.files.write("/kept", pieces())
    assert not (service.root / "kept").exists()
    assert await patient.files.write("/kept", pieces()) == 12


@pytest.mark.parametrize("in_pieces", [False, True])
async def test_a_full_disk_is_told_as_such_however_a_file_is_sent(
    patient: AsyncSandbox, service: Service, in_pieces: bool
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"all"

    full = {"error": "disk_full", "message": "the sandbox's disk is full"}
    service.faults.append(Fault("/files", status=507, body=full))
    with pytest.raises(DiskFull, match=r"^/kept: the sandbox's disk is full$") as caught:
        await patient.files.write("/kept", pieces() if in_pieces else b"all")
    assert caught.value.path == "/kept"


async def test_a_server_that_is_not_reached_is_given_up_however_long_an_attempt_takes(clock: Clock) -> None:
    """An attempt at a connection takes 10 s: it is no sign of a server that works."""
    clock.per_look = client_module.LONG_ATTEMPT + 0.5
    async with AsyncClient(url="http://127.0.0.1:1", api_key="k") as client:
        with pytest.raises(ConnectionFailed):
            await AsyncSandbox.list(client=client)
    assert len(clock.slept) <= 1


async def test_a_server_that_says_nothing_is_given_up(service: Service, clock: Clock) -> None:
    clock.per_look = client_module.LONG_ATTEMPT + 0.5
    async with AsyncClient(url=service.url, api_key=service.api_key, retry_for=20) as client:
        service.faults.extend([Fault("/sandbox", hold=True)] * 10)
        with pytest.raises(ConnectionFailed, match="no answer within"):
            await client.call("GET", "/sandbox", timeout=0.05)
    # Not what the server has read: an attempt may be over before the server's thread has its turn.
    assert 1 <= len(clock.slept) <= 3
