"""The start of an instance, and that of the command that its claim brings."""

from __future__ import annotations

import os

import pytest

from tests.sidecar.calls import exists
from tests.sidecar.support import Sidecar
from tests.waiting import until

pytestmark = pytest.mark.root


async def test_ready_comes_after_a_command_has_run(make) -> None:
    box = await make()
    event = await box.webhooks.wait("ready")
    assert event["signed"]
    assert event["headers"]["X-Sandlot-Instance"] == box.config["instance_id"]
    assert (event["phase"], event["generation"], event["template"]) == ("warm", 1, "t-test")
    assert event["address"] == f"unix:{box.socket}"
    assert (await box.client.get("/healthz")).json() == {"status": "ok"}
    metrics = (await box.instance("GET", "/v1/metrics")).text
    assert 'sandlot_sidecar_ops_total{verdict="exited"} 1' in metrics


async def test_nothing_is_ready_when_no_command_can_run(make) -> None:
    box = Sidecar(root={"lower": ["/proc/empty-of-everything"]})
    await box.webhooks.start()
    await box.launch()
    event = await box.webhooks.wait("ended")
    assert (event["verdict"], event["phase"]) == ("start_failed", "failed")
    assert not [item for item in box.webhooks.events if item["event"] == "ready"]
    await box.close()


async def test_socket_and_config_are_private(make) -> None:
    box = await make(claim={})
    assert os.stat(box.socket).st_mode & 0o777 == 0o600
    assert os.stat(f"{box.directory}/claim.json").st_mode & 0o777 == 0o600
    assert not exists(f"{box.directory}/config.json")


async def test_start_command_and_logs(make) -> None:
    box = await make(claim={"start_command": "echo up; echo bad >&2; read never; exit 3"})
    await until(lambda: logs(box, "all", "up\nbad\n"))
    assert (await box.call("GET", "/v1/logs?stream=stderr")).text == "bad\n"
    assert (await box.call("GET", "/v1/logs?stream=stdout&tail=2")).text == "p\n"
    await until(lambda: started(box, {"state": "ended", "exit_code": 3}))
    assert (await box.exec("echo usable"))["stdout"] == "usable\n"


async def logs(box: Sidecar, stream: str, wanted: str) -> bool:
    return (await box.call("GET", f"/v1/logs?stream={stream}")).text == wanted


async def started(box: Sidecar, wanted: dict[str, object]) -> bool:
    return (await box.call("GET", "/v1/state")).json()["start_command"] == wanted


async def test_start_command_as_argv_shares_the_sandbox(make) -> None:
    box = await make(claim={"start_command": ["sh", "-c", "echo $$ > /tmp/a; echo $0 $1", "zero", "a b"]})
    await until(lambda: logs(box, "stdout", "zero a b\n"))
    assert (await box.exec("test -s /tmp/a && echo there"))["stdout"] == "there\n"


async def test_only_the_last_mebibyte_of_the_start_commands_output_is_kept(make) -> None:
    box = await make(claim={"start_command": "head -c 3000000 /dev/zero | tr '\\0' x; echo end"})
    await until(lambda: started(box, {"state": "ended", "exit_code": 0}))
    text = (await box.call("GET", "/v1/logs")).text
    assert (1 << 20) - 4 <= len(text) <= 1 << 20
    assert text.endswith("xend\n")
