"""Two runs of one tenant: the first fills the queue with creates, and the second's is served at its turn."""

from __future__ import annotations

from tests import plain_http
from tests.stack import private_stack
from tests.waiting import wait_until

PATH = "/api/v1/sandbox"
SMALL = {"docker_image": "host", "memory_gb": 0.125, "wait_seconds": 0}


def test_a_run_that_fills_the_queue_delays_another_by_one_turn() -> None:
    with private_stack("--max-waiting", "20", "--max-starts", "1") as stack:
        headers = {"Authorization": f"Bearer {stack.api_key}"}
        with plain_http.client(base_url=stack.url, headers=headers, timeout=60) as client:
            while (filled := client.post(PATH, json={**SMALL, "run": "a"})).status_code == 201:
                pass
            assert (filled.status_code, "its run 'a' " in filled.json()["detail"]) == (503, True)
            made = client.post(PATH, json={**SMALL, "run": "b"}).json()

            def late() -> dict[str, str]:
                return client.get(f"{PATH}/{made['id']}").json()

            wait_until(lambda: late()["status"] == "RUNNING")
            of_a = client.get(PATH, params={"run": "a", "status": "RUNNING"}).json()["sandboxes"]
            meanwhile = [one for one in of_a if made["createdAt"] < one["startedAt"] < late()["startedAt"]]
            # One was being started, and one has the same turn.
            assert len(meanwhile) <= 2
            client.request("DELETE", PATH, json={"all_users": True})
