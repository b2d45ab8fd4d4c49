"""What tests of upgrades ask of sandboxes and commands that live through them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from sandlot import Client, ExecResult, Sandbox

from tests.kubernetes.boxes import pod_of, warm
from tests.kubernetes.stack import Stack

# Both Deployments roll, whatever the two charts have in common.
ROLLED = {"gateway.podAnnotations": {"rolled": "yes"}, "controller.podAnnotations": {"rolled": "yes"}}
LONG = "i=0; until test -e /stop; do i=$((i+1)); echo $i; echo $i >> /count; sleep 1; done; echo done"


def words(*values: dict[str, Any]) -> tuple[str, str]:
    """The options of Helm that set these values."""
    joined = {name: value for each in values for name, value in each.items()}
    return "--set-json", ",".join(f"{name}={json.dumps(value)}" for name, value in joined.items())


def identity(stack: Stack, box: Sandbox) -> tuple[str, list[int]]:
    pod = pod_of(stack, box)
    return pod["metadata"]["uid"], [each["restartCount"] for each in pod["status"]["containerStatuses"]]


def gateways(stack: Stack) -> set[str]:
    selector = "app.kubernetes.io/name=sandlot,app.kubernetes.io/component=gateway"
    pods = stack.get("pods", "-n", stack.namespace, "-l", selector)["items"]
    return {each["metadata"]["uid"] for each in pods if "deletionTimestamp" not in each["metadata"]}


@contextmanager
def stopped_at_the_end(box: Sandbox) -> Iterator[None]:
    """Ends LONG with the block, also when that fails: else the thread that waits for it holds the failure up."""
    try:
        yield
    finally:
        box.files.write("/stop", b"")


def goes_on(running: Future[ExecResult]) -> None:
    assert not running.done(), running.exception() or running.result()


def once_and_whole(box: Sandbox, result: ExecResult) -> None:
    """LONG ran once, and all of its output is there."""
    assert (result.exit_code, result.verdict) == (0, "exited")
    lines = result.stdout.splitlines()
    assert lines == [*map(str, range(1, len(lines))), "done"]
    assert box.exec("wc -l < /count", timeout=30).stdout.strip() == str(len(lines) - 1)


def check_all_lives(stack: Stack, client: Client, boxes: list[Sandbox], before: list[Any]) -> None:
    """Each box has `/mine` with its id, and runs `sleep 3600`. `before`: their identities."""
    for box in boxes:
        assert box.exec("cat /mine", timeout=60).stdout == box.id
        assert "sleep 3600" in box.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '", timeout=30).stdout
        assert box.refresh().status == "RUNNING"
    assert [identity(stack, box) for box in boxes] == before
    with warm(client) as another:
        assert another.exec("echo new", timeout=60).stdout == "new\n"
