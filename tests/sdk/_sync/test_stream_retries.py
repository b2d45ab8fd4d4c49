# This file is auto-generated from tests/sdk/_async/test_stream_retries.py by tools/async_to_sync.py: do not change it.
"""How often and how long a stream that stops is opened again: real requests, and a clock of the test's own."""

from __future__ import annotations

import threading

import pytest
from sandlot import Client, ConnectionFailed, Sandbox, ServerError
from sandlot._sync import reconnects, stream

from tests.sdk._sync.retrying import WINDOW, Clock, run, text_of
from tests.sdk.service.faults import Fault
from tests.sdk.service.server import Service
from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        (True, "the stream stopped before the end of the command"),
        (False, "the connection was closed in mid-answer"),
    ],
)
def test_a_stream_that_stops_and_stops_is_told_after_the_window(
    patient: Sandbox, service: Service, clock: Clock, stop: bool, message: str
) -> None:
    service.faults.extend(Fault("/ops", cut=0, stop=stop) for _ in range(40))
    with pytest.raises(ConnectionFailed, match=f"^{message}$") as caught:
        run(patient, "/ops")
    assert caught.value.sent is True
    assert 2.0 < sum(clock.slept) <= WINDOW
    assert all(clock.slept)


def test_a_stream_that_gets_on_is_followed_however_often_it_stops(
    patient: Sandbox, service: Service, clock: Clock
) -> None:
    service.faults.extend(Fault("/ops", cut=5) for _ in range(30))
    assert run(patient, "/ops") == "done\n"
    assert len(service.calls("/ops", "POST")) == 31
    assert max(clock.slept) < 0.1


@pytest.mark.parametrize(("held", "pause"), [(0.4, True), (0.5, False)])
def test_a_stream_that_held_for_a_while_is_opened_again_at_once(
    patient: Sandbox, service: Service, clock: Clock, held: float, pause: bool
) -> None:
    service.faults.append(Fault("/ops", cut=0))
    process = patient.start("echo done")
    clock.per_look = held  # two looks between the begin of the attempt and its end
    assert text_of(process) == "done\n"
    assert [seconds > 0 for seconds in clock.slept] == [pause]


def test_what_is_no_stream_is_told(patient: Sandbox, service: Service) -> None:
    service.faults.append(Fault("/ops", status=200, body={"error": "none"}))
    with pytest.raises(ServerError, match=r"^the stream cannot be read: \S"):
        run(patient, "/ops")


@pytest.mark.parametrize("attached", [False, True])
def test_a_stream_without_even_a_sign_of_life_is_opened_again(
    service: Service, clock: Clock, monkeypatch: pytest.MonkeyPatch, attached: bool
) -> None:
    # The time of the other clock is over after 30 silent connections, which may be before a busy machine runs the command.
    with (
        Client(url=service.url, api_key=service.api_key, retry_for=3600) as client,
        Sandbox.create(client=client) as box,
    ):
        for module in (reconnects, stream):
            monkeypatch.setattr(module, "SILENCE", 0.3)
        process = box.start("until [ -e go ]; do sleep 0.02; done; echo done", detach=attached)
        route, method = "/ops", "POST"
        if attached:
            process.detach()
            process = box.attach(process.op_id)
            route, method = f"/{process.op_id}/stream", "GET"
        service.faults.append(
            Fault(route, hold=True)
        )  # of one the head does not come, of the others no output

        def go() -> None:
            wait_until(lambda: len(service.calls(route, method)) >= 4)
            (service.root / "go").touch()

        going = threading.Thread(target=go)
        going.start()
        assert text_of(process) == "done\n"
        going.join()
