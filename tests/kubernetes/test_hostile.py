"""What hostile code in a sandbox of the installed chart cannot do; docs/security.md names each of these tests."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sandlot import Client, Sandbox
from sandlot_gateway.tokens import Tokens

from tests.kubernetes.attacks import BREAKOUT, NAMESPACE, SPY
from tests.kubernetes.boxes import resource_of, running_pod, warm
from tests.kubernetes.network_attacks import SQUAT
from tests.kubernetes.stack import Stack
from tests.sidecar.attacks import UNAUTHORIZED_CALLS


@pytest.fixture(scope="module")
def box(client: Client) -> Iterator[Sandbox]:
    with warm(client, secrets={"OWN": "its-own-secret"}) as made:
        yield made


@pytest.fixture(scope="module")
def neighbour(client: Client) -> Iterator[Sandbox]:
    with warm(client) as made:
        yield made


def run(box: Sandbox, program: str, *arguments: str) -> str:
    """Output of a program that has ended well."""
    result = box.exec(["python3", "-c", program, *arguments], timeout=120)
    assert (result.exit_code, result.stderr) == (0, ""), result
    return result.stdout


def credentials(stack: Stack, box: Sandbox) -> list[str]:
    """Everything secret that has to do with this sandbox and was not given to it."""
    secrets = stack.get("secrets", "-n", stack.namespace)["items"]
    data = {name: value for each in secrets for name, value in (each.get("data") or {}).items()}
    tokens = Tokens(base64.b64decode(data["master"]))
    generation = resource_of(stack, box)["spec"].get(
        "generation", 1
    )  # of a reused pod; a cold start has one owner
    pod = running_pod(stack, box)
    instance = pod["metadata"]["name"]
    sidecar = next(each for each in pod["spec"]["containers"] if each["name"] == "sidecar")
    config = next(each["value"] for each in sidecar["env"] if each["name"] == "SANDLOT_SIDECAR_CONFIG")
    assert json.loads(config)["token"] == tokens.instance(instance)
    of_client = tokens.client(box.id, "default", 0).partition(".")[0]
    return [
        tokens.instance(instance),
        tokens.sandbox(instance, generation, box.id),
        stack.api_key,
        data["master"],
        of_client,
    ]


@pytest.mark.parametrize("user", ["root", 1234])
def test_no_secret_can_be_read(stack: Stack, box: Sandbox, user: str | int) -> None:
    needles = [text[::-1] for text in credentials(stack, box)]
    result = box.exec(["python3", "-c", SPY, *needles], timeout=120, user=user, check=True)
    seen = json.loads(result.stdout)
    assert [seen[name] for name in ("found", "in environment", "foreign", "account")] == [[], [], [], []]
    assert set(seen["names"]) <= {"SANDLOT_SANDBOX_ID", "SANDLOT_OP"}
    # Its init and itself.
    assert (seen["processes"], seen["first"]) == (2, "1")
    assert not [path for path in seen["mounts"] if "secret" in path or "sandlot" in path]


def test_the_spy_finds_what_is_there(box: Sandbox) -> None:
    """Else the test above could not fail."""
    box.files.write("/var/tmp/hidden", b"... sit_of-somebody ...")
    box.start("sleep 600; : sit_of-somebody-else", detach=True)
    seen = json.loads(run(box, SPY, "sit_of-somebody"[::-1], "its-own-secret"[::-1]))
    assert ["/var/tmp/hidden", 0] in seen["found"]
    assert any(path.endswith("/cmdline") for path, _ in seen["found"])
    assert seen["in environment"] == [1]


@pytest.mark.parametrize("user", ["root", 1234])
def test_nothing_of_the_machine_is_given(stack: Stack, box: Sandbox, user: str | int) -> None:
    result = box.exec(["python3", "-c", BREAKOUT], timeout=120, user=user, check=True)
    # gVisor takes any priority and makes nothing of it.
    meaningless = {"a priority below 0"} if stack.runtime else set()
    assert set(json.loads(result.stdout)) - meaningless == set()
    assert box.exec("echo usable", timeout=30).stdout == "usable\n"


def test_a_user_namespace_of_ones_own_shows_nothing_more(box: Sandbox) -> None:
    assert json.loads(run(box, NAMESPACE)) == []


def test_signals_reach_only_ones_own(stack: Stack, client: Client) -> None:
    """Under gVisor they reach the sandbox's init too, which costs its processes and nothing else."""
    with warm(client) as box:
        before = running_pod(stack, box)
        box.files.write("/kept", b"yes")
        box.exec("for signal in 9 15 19 6; do kill -$signal -1; kill -$signal 1; done", timeout=60)
        loop = "for pid in $(seq 2 400); do kill -9 $pid 2>/dev/null && echo $pid; done; true"
        box.exec(loop, timeout=60)
        assert box.exec("cat /kept", timeout=60).stdout == "yes"
        after = running_pod(stack, box)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        for status in after["status"]["containerStatuses"]:
            assert status["restartCount"] == 0
            assert "running" in status["state"]


def test_the_sidecars_port_opens_nothing_without_a_token(stack: Stack, client: Client) -> None:
    """All but its health needs one. 600 idle connections do not keep others out either."""
    with warm(client) as box:
        address = running_pod(stack, box)["status"]["podIP"]
        assert run(box, UNAUTHORIZED_CALLS, "8700") == "200\nheld 600\n"
        assert run(box, UNAUTHORIZED_CALLS.replace("127.0.0.1", address), "8700") == "200\nheld 600\n"
        assert box.exec("echo usable", timeout=60).stdout == "usable\n"


def test_nobody_else_can_listen_on_the_sidecars_port(stack: Stack, box: Sandbox) -> None:
    address = running_pod(stack, box)["status"]["podIP"]
    assert json.loads(run(box, SQUAT, address)) == []


HOG = "data = []\nwhile True: data.append(bytearray(b'x') * (8 << 20))"


def test_a_memory_hog_hurts_only_itself(box: Sandbox, neighbour: Sandbox, stack: Stack) -> None:
    box.files.write("/kept", b"yes")
    with ThreadPoolExecutor(1) as thread:
        hog = thread.submit(box.exec, ["python3", "-c", HOG], timeout=120)
        while not hog.done():
            assert neighbour.exec("echo calm", timeout=60).stdout == "calm\n"
        result = hog.result()
    assert result.verdict == "oom", result
    assert result.usage.peak_memory > 256 << 20
    assert box.exec("cat /kept", timeout=60).stdout == "yes"
    assert running_pod(stack, box)["status"]["phase"] == "Running"
