"""The egress policy itself: what is asked for and told, from when on it holds, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests import plain_http
from tests.cable import Cable
from tests.prime.egress.sandbox import EVERYTHING, NOTHING, NOWHERE, Sandbox
from tests.prime_rpc.conftest import make_box
from tests.probe import PROBE
from tests.stack import Stack

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


def test_other_sandboxes_are_not_held(stack: Stack, sandbox: Sandbox, net: Cable):
    other = Sandbox(stack, make_box(stack))
    sandbox.set(allow=[])
    assert other.reaches(f"tcp {net.inside} 7001") == ["hi"]
    assert other.policy()["policy"] == EVERYTHING
    other.delete()


def test_it_outlives_a_reset_and_a_gateway_and_not_its_sandbox(stack: Stack, sandbox: Sandbox, net: Cable):
    target = f"tcp {net.inside} 7001"
    generation = sandbox.set(deny=[net.inside])
    assert sandbox.post("/reset").status_code == 200
    sandbox.run("cat > /tmp/probe.py", stdin=PROBE)
    assert sandbox.reaches(target) == ["EPERM"]
    stack.kill()
    stack.start()
    told = sandbox.policy()
    expected = {"allowlist": None, "denylist": [f"{net.inside}/32"]}
    assert (told["policy"], told["generation"], told["applied"]) == (expected, generation, True)
    assert sandbox.reaches(target) == ["EPERM"]
    sandbox.delete()
    later = Sandbox(stack, make_box(stack))
    assert later.reaches(target) == ["hi"]
    assert later.policy()["generation"] == 1
    later.delete()


def test_what_is_asked_for_is_told_canonically_and_only_a_change_counts(sandbox: Sandbox):
    assert sandbox.set(deny=[]) == 1
    assert sandbox.set(deny=["10.0.0.1", "10.1.0.0/16:443", "10.0.0.1/32", "192.0.2.1:80-90"]) == 2
    assert sandbox.set(deny=["10.0.0.1/32", "10.1.0.0/16:443-443", "192.0.2.1/32:80-90"]) == 2
    assert sandbox.policy()["policy"]["denylist"] == ["10.0.0.1/32", "10.1.0.0/16:443", "192.0.2.1/32:80-90"]
    assert sandbox.set(allow=["Example.ORG.", "*.Bücher.example:443", "example.org"]) == 3
    assert sandbox.policy()["policy"]["allowlist"] == ["example.org", "*.xn--bcher-kva.example:443"]


def test_a_policy_of_the_create_holds_from_the_first_command_on(stack: Stack, net: Cable):
    # The command of the start is held too.
    start = f"python3 -c \"import socket; socket.create_connection(('{net.inside}', 7001))\" 2> /tmp/said; touch /tmp/done"
    more = {"network_allowlist": ["allowed.test", f"{net.inside}:7002"], "start_command": start}
    box = Sandbox(stack, make_box(stack, **more))
    assert box.policy()["policy"] == {
        "allowlist": ["allowed.test", f"{net.inside}/32:7002"],
        "denylist": None,
    }
    assert (box.policy()["generation"], box.policy()["applied"]) == (1, True)
    box.run("until [ -e /tmp/done ]; do sleep 0.02; done")
    assert "PermissionError" in box.run("cat /tmp/said")
    assert box.reaches(f"tcp {net.inside} 7001", f"tcp {net.inside} 7002") == ["EPERM", "hi"]
    assert box.asks(f"http {NOWHERE} allowed.test", f"http {NOWHERE} other.test") == ["http", "403"]
    assert box.set(allow=[]) == 2
    box.delete()
    later = Sandbox(stack, make_box(stack))
    assert later.reaches(f"tcp {net.inside} 7001") == ["hi"]
    later.delete()


def test_a_thousand_entries_are_held(sandbox: Sandbox, net: Cable):
    entries = [f"10.{n // 256}.{n % 256}.0/24:{n + 1}-{n + 2}" for n in range(1023)]
    sandbox.set(deny=[*entries, f"{net.inside}:7001"])
    assert sandbox.reaches(f"tcp {net.inside} 7001", f"tcp {net.inside} 7002") == ["EPERM", "hi"]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"allowlist": ["example.org:8080"]}, "a host's port must be 80 or 443"),
        ({"denylist": ["example.org:80-443"]}, "a host's port must be 80 or 443"),
        ({"denylist": ["https://example.org"]}, "the port must be a number"),
        ({"denylist": ["example.org/path"]}, "is invalid: must be"),
        ({"denylist": ["example..org"]}, "is not a host name"),
        ({"denylist": ["*"]}, "is invalid: must be"),
        ({"denylist": ["a.*.org"]}, "is invalid: must be"),
        ({"denylist": ["10.0.0.1/8"]}, "not an IPv4 address or network"),
        ({"denylist": ["10.0.0.256"]}, "not an IPv4 address or network"),
        ({"denylist": ["10.0.0.1:0"]}, "ports must be 1 to 65535"),
        ({"denylist": ["10.0.0.1:9-8"]}, "ports must be 1 to 65535"),
        ({"denylist": ["10.0.0.1:http"]}, "the port must be a number"),
        ({"denylist": ["::1"]}, "IPv6"),
        ({"denylist": [""]}, "is invalid: must be"),
    ],
)
def test_what_cannot_be_held_is_refused_and_changes_nothing(
    sandbox: Sandbox, policy: dict[str, Any], words: str
):
    answer = sandbox.put(policy)
    (field,) = policy
    assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, f"{field}.0")
    assert words in answer.json()["detail"]
    assert sandbox.policy()["policy"] == EVERYTHING


def test_a_sandbox_without_a_network_gets_none(stack: Stack):
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    body = {"docker_image": "host", "network": "none"}
    box = plain_http.post(f"{stack.url}/api/v1/sandbox", headers=headers, json=body, timeout=60).json()
    path = f"{stack.url}/api/v1/sandbox/{box['id']}"
    same, refused = (
        plain_http.put(f"{path}/egress-policy", headers=headers, json=policy, timeout=60)
        for policy in (NOTHING, EVERYTHING)
    )
    assert same.json()["generation"] == 1
    assert (refused.status_code, "created with network 'none'" in refused.text) == (422, True)
    plain_http.delete(path, headers=headers, timeout=60)
