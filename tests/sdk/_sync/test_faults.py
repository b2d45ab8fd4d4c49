# This file is auto-generated from tests/sdk/_async/test_faults.py by tools/async_to_sync.py: do not change it.
"""Lost answers, busy servers, dead sandboxes: nothing is lost, nothing runs twice, and the error says what it was."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

import pytest
from sandlot import (
    Busy,
    Client,
    ConnectionFailed,
    Sandbox,
    SandboxLost,
    ServerError,
    Stdout,
    TransferProgress,
    WaitTimeout,
)

from tests.sdk.service.faults import Fault
from tests.sdk.service.server import Service

COUNT = "echo x >> count; cat count | wc -l"


@pytest.mark.parametrize(
    "fault",
    [
        Fault("/exec", lose=True),
        Fault("/exec", refuse=True),
        Fault("/exec", status=502, body={"error": "may_have_run"}),
        Fault("/exec", status=503, body={"error": "busy"}, headers={"Retry-After": "0.05"}),
        Fault("/exec", status=503, body={"error": "internal"}),
        Fault("/exec", status=504),
    ],
    ids=lambda fault: f"{fault.status or ('lost' if fault.lose else 'refused')}",
)
def test_an_exec_is_sent_again_and_runs_once(faulty: Sandbox, service: Service, fault: Fault) -> None:
    service.faults.append(fault)
    result = faulty.exec(COUNT, timeout=10)
    assert result.stdout.strip() == "1"
    sent = service.calls("/exec")
    assert len(sent) == 2
    assert sent[0].headers["x-sandlot-op"] == sent[1].headers["x-sandlot-op"] == result.op_id


def test_many_losses_in_a_row_are_outlasted(faulty: Sandbox, service: Service) -> None:
    service.faults.extend(Fault("/exec", lose=True) for _ in range(4))
    assert (faulty.exec(COUNT)).stdout.strip() == "1"


def test_a_server_that_stays_away_is_told(service: Service) -> None:
    with Client(url=service.url, api_key=service.api_key, retry_for=0.3) as client:
        box = Sandbox.create(client=client)
        service.faults.extend(Fault("/exec", refuse=True) for _ in range(30))
        begin = time.monotonic()
        with pytest.raises(ConnectionFailed) as caught:
            box.exec("true")
        assert time.monotonic() - begin < 50  # of 60
        assert caught.value.sent


def test_a_server_that_is_not_there_is_told_soon() -> None:
    with Client(url="http://127.0.0.1:1", api_key="k") as client:
        begin = time.monotonic()
        with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1"):
            Sandbox.list(client=client)
        assert time.monotonic() - begin < 50  # of 60


def test_a_dead_sandbox_raises_with_its_verdict_and_is_not_asked_again(
    faulty: Sandbox, service: Service
) -> None:
    lost = {"error": "sandbox_not_found", "verdict": "node_lost", "message": "the node is gone"}
    service.faults.append(Fault("/exec", status=502, body=lost))
    with pytest.raises(SandboxLost, match="the node is gone") as caught:
        faulty.exec("true")
    assert caught.value.verdict == "node_lost"
    assert caught.value.infrastructure
    assert len(service.calls("/exec")) == 1


@pytest.mark.parametrize("verdict", ["sandbox_broken", "sidecar_lost", "evicted", "sandbox_ended"])
def test_a_command_that_the_infrastructure_ended_raises(
    faulty: Sandbox, service: Service, verdict: str
) -> None:
    service.lost_verdict = verdict
    with pytest.raises(SandboxLost) as caught:
        faulty.exec("true")
    assert caught.value.verdict == verdict
    with pytest.raises(SandboxLost):
        for _ in faulty.exec("true", stream=True):
            pass
    with pytest.raises(SandboxLost):
        (faulty.start("true")).wait()


def test_a_server_error_is_not_retried(faulty: Sandbox, service: Service) -> None:
    service.faults.append(Fault("/exec", status=500, body={"error": "oops"}))
    with pytest.raises(ServerError):
        faulty.exec("true")
    assert len(service.calls("/exec")) == 1


def test_a_server_that_stays_busy_raises_busy(faulty: Sandbox, service: Service) -> None:
    refusal = {"headers": {"Retry-After": "9999"}, "body": {"error": "busy", "message": "full"}}
    service.faults.append(Fault("/exec", status=503, **refusal))  # type: ignore[arg-type]
    with pytest.raises(Busy, match="full") as caught:
        faulty.exec("true")
    assert caught.value.retry_after == 9999


@pytest.mark.parametrize("cuts", [[0], [1], [3, 9], [60], [75, 80, 120]])
def test_a_stream_goes_on_where_it_was_cut(faulty: Sandbox, service: Service, cuts: list[int]) -> None:
    service.faults.append(Fault("/ops", cut=cuts[0]))
    service.faults.extend(Fault("/ops", cut=cut) for cut in cuts[1:])
    text = ""
    for event in faulty.exec(
        "echo x >> count; for i in 1 2 3; do echo line-$i; done; cat count", stream=True
    ):
        if isinstance(event, Stdout):
            text += event.text
    assert text == "line-1\nline-2\nline-3\nx\n"
    assert len(service.calls("/ops", "POST")) == len(cuts) + 1


def test_an_attached_stream_goes_on_where_it_was_cut(faulty: Sandbox, service: Service) -> None:
    process = faulty.start("echo one; read line; echo two", detach=True)
    process.detach()
    service.faults.append(Fault("/stream", cut=40))
    again = faulty.attach(process.op_id)
    again.write("go\n")
    text = "".join([event.text for event in again if isinstance(event, Stdout)])
    assert text == "one\ntwo\n"


def test_input_is_written_once_although_its_answer_was_lost(faulty: Sandbox, service: Service) -> None:
    with faulty.start("cat") as process:
        service.faults.append(Fault("/stdin", lose=True))
        process.write("once\n")
        process.close_stdin()
        assert (process.wait()).stdout == "once\n"


def test_input_of_a_command_that_does_not_read_waits_for_it(faulty: Sandbox, service: Service) -> None:
    """The sidecar holds a request for 30 s: what it took by then counts, and the rest comes again."""
    full = {"error": "stdin_full", "message": "the op does not read its input", "offset": 65536}
    service.faults.extend([Fault("/stdin", status=408, body=full)] * 3)
    result = faulty.exec("sha256sum | cut -c1-64", stdin=b"\xff" * 300_000)
    assert result.stdout.strip() == hashlib.sha256(b"\xff" * 300_000).hexdigest()
    assert not service.faults


def test_input_that_comes_too_slowly_is_an_error(faulty: Sandbox, service: Service) -> None:
    service.faults.append(Fault("/stdin", status=408, body={"error": "body_timeout", "message": "too slow"}))
    with pytest.raises(Busy, match="too slow"):
        faulty.exec("cat", stdin=b"\xff")


def test_a_refused_token_is_renewed_once(faulty: Sandbox, service: Service) -> None:
    service.token = "token-2"
    assert (faulty.exec("echo ok")).stdout == "ok\n"
    assert len(service.calls("/auth")) == 1


def test_a_kept_connection_that_the_server_closed_is_no_failure(faulty: Sandbox, service: Service) -> None:
    faulty.exec("true")
    service.faults.append(Fault("/exec", refuse=True))
    faulty.exec("true")
    assert len(service.calls("/exec")) == 3


def test_a_create_whose_answer_was_lost_makes_one_sandbox(service: Service) -> None:
    service.faults.append(Fault("/sandbox", lose=True))
    with (
        Client(url=service.url, api_key=service.api_key) as client,
        Sandbox.create(client=client),
    ):
        assert len(service.sandboxes) == 1
        assert len(service.calls("/sandbox", "POST")) == 2


def test_a_sandbox_that_is_not_ready_yet_is_waited_for(service: Service) -> None:
    service.pending_reads = 3
    with (
        Client(url=service.url, api_key=service.api_key) as client,
        Sandbox.create(client=client) as box,
    ):
        assert box.info.status == "RUNNING"
        assert service.pending_reads == 0


def test_a_sandbox_that_never_gets_ready_is_deleted(service: Service) -> None:
    service.pending_reads = 1000
    with Client(url=service.url, api_key=service.api_key) as client:
        with pytest.raises(WaitTimeout):
            Sandbox.create(client=client, wait=0.2)
    assert [box["status"] for box in service.sandboxes.values()] == ["TERMINATED"]


def test_a_sandbox_that_cannot_start_raises_with_its_verdict(service: Service) -> None:
    service.pending_reads = 1
    service.lost_verdict = "image_pull"
    with Client(url=service.url, api_key=service.api_key) as client:
        with pytest.raises(SandboxLost) as caught:
            Sandbox.create(client=client)
    assert caught.value.verdict == "image_pull"


def test_a_download_goes_on_where_it_was_cut(faulty: Sandbox, service: Service, tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000
    faulty.files.write("/big", data)
    service.faults.extend([Fault("/files", cut=100_000), Fault("/files", cut=1)])
    assert faulty.files.download("/big", tmp_path / "big") == len(data)
    assert (tmp_path / "big").read_bytes() == data


def test_an_upload_that_was_interrupted_is_sent_again(
    faulty: Sandbox, service: Service, tmp_path: Path
) -> None:
    (tmp_path / "big").write_bytes(b"z" * 2_000_000)
    service.faults.append(Fault("/files", refuse=True))
    seen: list[TransferProgress] = []
    assert faulty.files.upload(tmp_path / "big", "/big", progress=seen.append) == 2_000_000
    assert (max(each.bytes for each in seen), seen[-1].bytes) == (2_000_000, 2_000_000)
    assert (service.root / "big").stat().st_size == 2_000_000


def test_a_run_s_list_has_no_others_sandboxes_also_of_a_gateway_that_knows_no_runs(
    faulty: Sandbox, service: Service
) -> None:
    """It ignores the query and answers with all of the tenant's, which a caller might delete."""
    pages: list[object] = [
        [{"id": "a"}, {"id": "b", "run": "other"}],
        [{"id": "c", "run": "r"}, {"id": "d", "run": "r"}],
    ]
    for limit, expected in ((None, ["c", "d"]), (1, ["c"])):
        for number, page in enumerate(pages):
            body: dict[str, object] = {"sandboxes": page, "has_next": number == 0}
            service.faults.append(Fault("/sandbox", status=200, body=body))
        found = Sandbox.list(run="r", limit=limit, client=faulty.client)
        assert [info.id for info in found] == expected


def test_the_end_of_a_python_context_is_sent_again(faulty: Sandbox, service: Service) -> None:
    """Nothing else would end it: it is detached."""
    context = faulty.python(interpreter=sys.executable)
    route = f"/ops/{context.id}"
    service.faults.append(Fault(route, status=503, body={"error": "internal"}))
    context.close()
    assert [call.method for call in service.calls(route)] == ["DELETE", "DELETE"]
