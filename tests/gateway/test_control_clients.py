"""Old, odd and hostile clients of the control routes: each gets an answer it can read, or an error."""

from __future__ import annotations

import pytest

from tests.gateway.conftest import API, Running


@pytest.mark.parametrize(
    ("user_agent", "string", "argv"),
    [
        ("prime-sandboxes/0.2.27 python/3.11", "a b", "a 'b c'"),
        ("prime-sandboxes/0.2.40 python/3.11", "a b", {"executable": "a", "args": ["b c"]}),
        ("prime-sandboxes/0.5.1 python/3.11", None, {"executable": "a", "args": ["b c"]}),
        ("sandlot/0.1.0", "a b", {"executable": "a", "args": ["b c"]}),
        ("", None, {"executable": "a", "args": ["b c"]}),
    ],
)
async def test_the_start_command_has_the_shape_its_client_can_read(
    box: Running, user_agent, string, argv
) -> None:
    headers = {"user-agent": user_agent}
    for command in ("a b", ["a", "b c"], {"executable": "a", "args": ["b c"]}):
        made = await box.create(start_command=command)
        wanted = string if isinstance(command, str) else argv
        one = await box.client.get(f"{API}/sandbox/{made['id']}", headers=headers)
        assert one.json()["startCommand"] == wanted
        assert box.machine.of_sandbox(made["id"]).claim["start_command"] == (
            command if isinstance(command, str) else ["a", "b c"]
        )
    listed = (await box.client.get(f"{API}/sandbox", headers=headers)).json()["sandboxes"]
    assert [one["startCommand"] for one in listed] == [argv, argv, string]


@pytest.mark.parametrize(
    ("user_agent", "sizes"),
    [
        ("prime-sandboxes/0.2.13 python/3.11", [1, 1, 3]),
        ("prime-sandboxes/0.2.15 python/3.11", [0.5, 0.25, 2.5]),
        ("prime-sandboxes/0.5.1 python/3.11", [0.5, 0.25, 2.5]),
    ],
)
async def test_sizes_are_whole_for_clients_that_know_no_others(box: Running, user_agent, sizes) -> None:
    await box.create(cpu_cores=0.5, memory_gb=0.25, disk_size_gb=2.5)
    listed = await box.client.get(f"{API}/sandbox", headers={"user-agent": user_agent})
    [one] = listed.json()["sandboxes"]
    told = [one[name] for name in ("cpuCores", "memoryGB", "diskSizeGB")]
    assert told == sizes
    assert [type(size) for size in told] == [type(size) for size in sizes]


HALF = "\\ud800"  # as JSON says it; what keeps it could never be written down


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "sandbox", f'{{"docker_image": "host", "name": "a{HALF}"}}', "name"),
        ("POST", "sandbox", f'{{"docker_image": "host{HALF}"}}', "docker_image"),
        ("POST", "sandbox", f'{{"docker_image": "host", "environment_vars": {{"A": "{HALF}"}}}}', "environment_vars"),
        ("POST", "sandbox", f'{{"docker_image": "host", "secrets": {{"{HALF}": "A"}}}}', "secrets"),
        ("POST", "sandbox", f'{{"docker_image": "host", "labels": ["{HALF}"]}}', "labels"),
        ("POST", "sandbox", f'{{"docker_image": "host", "start_command": {{"executable": "{HALF}"}}}}', "start_command"),
        ("POST", "sandbox", f'{{"docker_image": "host", "advanced_configs": {{"a": [{{"b": "{HALF}"}}]}}}}', "advanced_configs"),
        ("PUT", "pools/mine", f'{{"size": 0, "image": "{HALF}"}}', "image"),
    ],
)  # fmt: skip
async def test_half_a_character_is_refused_with_its_field(
    box: Running, method: str, path: str, body: str, field: str
) -> None:
    before = (await box.client.get(f"{API}/pools")).json()
    answer = await box.client.request(
        method, f"{API}/{path}", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422, answer.text
    assert {error["param"] for error in answer.json()["errors"]} == {field}
    assert (await box.client.get(f"{API}/pools")).json() == before
    assert (await box.client.get(f"{API}/sandbox")).json()["sandboxes"] == []
    assert (await box.create())["status"] == "RUNNING"


async def test_an_odd_client_is_answered_like_any_other(box: Running) -> None:
    made = await box.create()
    headers = {"User-Agent": f"prime-sandboxes/0.2.{'9' * 5000}"}
    assert (await box.client.get(f"{API}/sandbox/{made['id']}", headers=headers)).status_code == 200


async def test_what_a_client_says_of_a_proxy_is_not_believed(box: Running) -> None:
    answer = await box.client.post(
        f"{API}/sandbox",
        json={"docker_image": "host"},
        headers={"X-Forwarded-Proto": "https", "X-Forwarded-For": "6.6.6.6"},
    )
    assert answer.json()["gatewayAuth"]["gateway_url"] == box.url
