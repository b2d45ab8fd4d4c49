"""The SDK against the chart: warm and cold sandboxes, commands, files, ends with their verdicts."""

from __future__ import annotations

from sandlot import Client, Sandbox

from tests.kubernetes.boxes import pod_of, until
from tests.kubernetes.killing import sandbox_pods, warm_everywhere
from tests.kubernetes.pools import REPLACED, own_pool
from tests.kubernetes.stack import IMAGE, POOL, Stack


def ready_in_pool(stack: Stack) -> int:
    return int(stack.get("sandboxpool", "default", "-n", stack.sandboxes).get("status", {}).get("ready", 0))


def test_a_pool_fills_and_a_create_takes_from_it(stack: Stack, client: Client) -> None:
    until(lambda: ready_in_pool(stack) == POOL, seconds=180)
    warm_everywhere(stack, size=1)
    with Sandbox.create(IMAGE, client=client, cpu=1, memory=512 << 20, disk=1 << 30) as box:
        assert box.info.pool_hit
        result = box.exec("echo hello; id -u; cat /proc/1/cmdline | tr '\\0' ' '", timeout=30)
        assert result.exit_code == 0
        assert result.stdout.startswith("hello\n0\n")
        assert "SANDLOT" not in result.stdout
    until(lambda: ready_in_pool(stack) == POOL, seconds=180)


def test_what_no_pool_has_is_started(stack: Stack, client: Client) -> None:
    with Sandbox.create(IMAGE, client=client, cpu=1, memory=300 << 20, disk=1 << 30, wait=180) as box:
        assert not box.info.pool_hit
        assert box.exec("python3 -c 'print(6 * 7)'", timeout=60).stdout == "42\n"


def test_files_and_environment(client: Client) -> None:
    with Sandbox.create(
        IMAGE, client=client, cpu=1, memory=512 << 20, disk=1 << 30, env={"COLOUR": "blue"}
    ) as box:
        box.files.write("/tmp/in.bin", bytes(range(256)) * 1000)
        assert box.exec("wc -c < /tmp/in.bin; echo $COLOUR", timeout=30).stdout.split() == ["256000", "blue"]
        assert box.files.read("/tmp/in.bin") == bytes(range(256)) * 1000


def test_output_that_does_not_fit_into_the_sidecars_memory_is_whole(client: Client) -> None:
    with Sandbox.create(IMAGE, client=client, cpu=1, memory=512 << 20, disk=1 << 30) as box:
        result = box.exec("head -c 3000000 /dev/zero | tr '\\0' z", timeout=60)
        assert (len(result.stdout), result.stdout.strip("z")) == (3_000_000, "")


def test_a_delete_is_told_by_the_resource_and_the_pod_goes(stack: Stack, client: Client) -> None:
    with own_pool(stack, "replaced", size=1, reuse=REPLACED) as pool:
        box = pool.create(client)
        until(lambda: any(r["spec"].get("sandboxId") == box.id for r in _resources(stack)))
        pod = next(r for r in _resources(stack) if r["spec"].get("sandboxId") == box.id)["spec"]["podName"]
        assert pod in pool.pods()
        box.delete()

        def ended() -> bool:
            found = [r for r in _resources(stack) if r["spec"].get("sandboxId") == box.id]
            return [r.get("status", {}).get("verdict") for r in found] == ["deleted"]

        until(ended)
        until(lambda: pod not in sandbox_pods(stack))


def test_a_pod_that_is_killed_ends_its_sandbox_with_a_verdict_of_the_infrastructure(
    stack: Stack, client: Client
) -> None:
    box = Sandbox.create(IMAGE, client=client, cpu=1, memory=512 << 20, disk=1 << 30)
    pod = pod_of(stack, box)["metadata"]["name"]
    stack.kubectl("delete", "pod", pod, "-n", stack.sandboxes, "--wait=false")
    until(lambda: box.refresh().verdict is not None)
    assert box.refresh().verdict == "evicted"


def _resources(stack: Stack) -> list[dict]:
    """Those of sandboxes that have their instance."""
    found = stack.get("sandboxes", "-n", stack.sandboxes)["items"]
    return [each for each in found if each["spec"]["state"] == "Running"]
