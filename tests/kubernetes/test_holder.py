"""A container's first process that an init container copied (`sandboxes.holder: copy`), as on nodes without image volumes.

The same release has sidecars that speak TLS, which would need one of their own otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from sandlot import Client, Sandbox

from tests.kubernetes.boxes import POOLED, pods_exec, running_pod, warm
from tests.kubernetes.killing import warm_everywhere
from tests.kubernetes.releases import release_of_its_own
from tests.kubernetes.stack import IMAGE, Stack

VALUES = {
    "sandboxes.holder": "copy",
    "pools": {"default": {"size": 1, "template": {"image": IMAGE, **POOLED}}},
    "sidecarTls.enabled": True,
    "gateway.replicas": 1,
    "controller.replicas": 1,
}
LOOK = [
    "python3",
    "-c",
    "import os; print(oct(os.stat('/.sandlot/holder').st_mode)); open('/.sandlot/x', 'w')",
]


@pytest.fixture(scope="module", params=["gvisor", "runc"])
def copied(request: pytest.FixtureRequest) -> Iterator[Stack]:
    with release_of_its_own("copy", runtime=request.param) as stack:
        assignments = ",".join(f"{name}={json.dumps(value)}" for name, value in VALUES.items())
        stack.install("--set-json", assignments)
        yield stack


def check(stack: Stack, box: Sandbox) -> None:
    """It runs commands, behind the same walls, and its first process is the copy."""
    pod = running_pod(stack, box)
    [copying] = pod["spec"]["initContainers"]
    [held] = [each for each in pod["spec"]["volumes"] if each["name"] == copying["name"]]
    assert "emptyDir" in held
    [state] = pod["status"]["initContainerStatuses"]
    assert state["state"]["terminated"]["exitCode"] == 0
    assert box.exec("echo hello && id -u").stdout == "hello\n0\n"
    # Commands see neither it nor its directory, and have their own of that name.
    seen = box.exec("ls -a /; cat /proc/mounts /proc/*/cmdline")
    assert ".sandlot" not in seen.stdout
    assert (
        box.exec("mkdir /.sandlot && echo mine > /.sandlot/holder && cat /.sandlot/holder").stdout == "mine\n"
    )
    name = pod["metadata"]["name"]
    with pytest.raises(AssertionError, match="Read-only file system"):
        pods_exec(stack, name, LOOK)
    first = pods_exec(stack, name, ["python3", "-c", "import os; print(os.stat('/.sandlot/holder').st_size)"])
    assert 0 < int(first) < 1024
    box.reset()
    assert box.exec("ls -d /.sandlot").exit_code != 0


def test_a_warm_sandbox_and_a_cold_one_have_a_copied_first_process(copied: Stack) -> None:
    with Client(url=copied.url, api_key=copied.api_key) as client:
        warm_everywhere(copied, size=1)
        with warm(client) as box:
            assert box.info.pool_hit
            check(copied, box)
        with Sandbox.create(IMAGE, client=client, cpu=0.5, memory="256MiB", disk="512MiB", wait=240) as box:
            assert not box.info.pool_hit
            check(copied, box)


def test_encrypted_calls_reach_a_sidecar_whose_key_no_command_sees(copied: Stack) -> None:
    with Client(url=copied.url, api_key=copied.api_key) as client:
        warm_everywhere(copied, size=1)
        with warm(client) as box:
            pod = running_pod(copied, box)
            assert pod["metadata"]["annotations"]["sandlot.dev/sidecar-tls"] == "true"
            assert box.exec("echo hello").stdout == "hello\n"
            assert (
                box.exec("ls -d /etc/sandlot; find / -xdev -name tls.key; cat /proc/mounts").stdout.count(
                    "tls"
                )
                == 0
            )
            with pytest.raises(AssertionError, match="No such file"):
                pods_exec(copied, pod["metadata"]["name"], ["ls", "/etc/sandlot"])
