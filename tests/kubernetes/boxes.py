"""What the tests on a cluster do again and again: a sandbox of the pool, its pod, a command by pods/exec, a wait."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kubernetes import client as official
from kubernetes import config as official_config
from kubernetes.stream import stream
from sandlot import Client, Sandbox

from tests.kubernetes.stack import IMAGE, Stack
from tests.waiting import wait_until

T = TypeVar("T")

POOLED: dict[str, Any] = {"cpu": 1, "memory": 512 << 20, "disk": 1 << 30}  # what Stack's pool is made of


def until(read: Callable[[], T], *, seconds: float = 120.0, pause: float = 0.2) -> T:
    """Reads until there is something: a cluster tells nobody when its controllers are done."""
    return wait_until(read, seconds=seconds, pause=pause)


def warm(client: Client, **more: Any) -> Sandbox:
    """One of what the pool is made of; a pool that is being filled is waited for."""
    return Sandbox.create(IMAGE, client=client, **{**POOLED, "wait": 180, **more})


def filled(stack: Stack, *, size: int) -> None:
    """Waits until the pool says so."""
    until(lambda: _ready(stack) >= size, seconds=180)


def resources(stack: Stack) -> list[dict[str, Any]]:
    return stack.get("sandboxes.sandlot.dev", "-n", stack.sandboxes)["items"]


def owner(resource: dict[str, Any]) -> str | None:
    """The id of the sandbox that it tells of: what claimed it, else what it was started for."""
    spec = resource["spec"]
    return spec.get("sandboxId", spec.get("madeFor"))


def owned(stack: Stack, ids: set[str]) -> list[dict[str, Any]]:
    """Those that tell of an instance of one of these sandboxes."""
    return [
        each
        for each in resources(stack)
        if owner(each) in ids and each["spec"]["state"] in ("Started", "Running")
    ]


def resource_of(stack: Stack, box: Sandbox) -> dict[str, Any]:
    """The Sandbox that tells of it, which is written a moment after the claim.

    For one from the pool, a cold start that was not needed may have one before the claim has.
    """
    if not box.info.pool_hit:
        return only_records(stack, {box.id})[0]

    return until(lambda: [each for each in owned(stack, {box.id}) if "sandboxId" in each["spec"]])[0]


def only_records(stack: Stack, ids: set[str]) -> list[dict[str, Any]]:
    """One Sandbox for each: a cold start for one that got a warm instance meanwhile is there for a moment longer."""

    def one_each() -> list[dict[str, Any]]:
        found = owned(stack, ids)
        return found if sorted(map(str, map(owner, found))) == sorted(ids) else []

    return until(one_each)


def pod_of(stack: Stack, box: Sandbox) -> dict[str, Any]:
    resource = resource_of(stack, box)
    name = resource["spec"].get("podName") or resource["metadata"]["name"]
    return stack.get("pod", name, "-n", stack.sandboxes)


def pod_name(box: Sandbox) -> str:
    """Of its pod, by a command: before there is a record of it, which takes ten seconds in a pod that is reused."""
    return box.exec("echo $HOSTNAME", timeout=60, check=True).stdout.strip()


def running_pod(stack: Stack, box: Sandbox) -> dict[str, Any]:
    """Its pod, where no record is needed."""
    return stack.get("pod", pod_name(box), "-n", stack.sandboxes)


def pods_exec(stack: Stack, pod: str, command: list[str], *, container: str = "sandbox") -> str:
    """By the official client, as anybody would without Sandlot."""
    api_client = official_config.new_client_from_config(config_file=stack.kubeconfig, context=stack.context)
    with api_client:
        answer = stream(
            official.CoreV1Api(api_client).connect_get_namespaced_pod_exec,
            pod,
            stack.sandboxes,
            container=container,
            command=command,
            stderr=True,
            stdin=False,
            stdout=True,
            tty=False,
            _preload_content=False,
        )
        try:
            answer.run_forever(timeout=240)
            assert _exit_code(answer) == 0, answer.read_all()
            return str(answer.read_all())
        finally:
            # Its own `close` does nothing once the server has closed first.
            answer.sock.shutdown()


def _exit_code(answer: Any) -> int | None:
    """None: it still runs, or it was lost with its container, of which the client's own `returncode` makes nothing."""
    try:
        return answer.returncode
    except (KeyError, TypeError, ValueError):
        return None


@contextmanager
def namespace(stack: Stack, name: str) -> Iterator[str]:
    """One that has nothing to do with Sandlot."""
    stack.kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        stack.kubectl("delete", "namespace", name, "--wait")


@contextmanager
def plain_pod(stack: Stack, where: str, name: str, spec: dict[str, Any]) -> Iterator[str]:
    """A pod of somebody else's in the namespace `where`, once it is ready; its address."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    stack.kubectl("apply", "-n", where, "-f", "-", stdin=json.dumps(pod))
    try:
        stack.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "-n", where, "--timeout=240s")
        yield stack.get("pod", name, "-n", where)["status"]["podIP"]
    finally:
        stack.kubectl("delete", "pod", name, "-n", where, "--wait")


def _ready(stack: Stack) -> int:
    status = stack.get("sandboxpool", "default", "-n", stack.sandboxes).get("status", {})
    return int(status.get("ready", 0))
