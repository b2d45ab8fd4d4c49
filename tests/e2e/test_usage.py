"""Usage over a real stack whose gateway is killed: each sandbox counts once, for as long as the API says that it lived."""

from __future__ import annotations

import os
import signal

import pytest
from sandlot import Accounting, Client, Sandbox, UsageRow

from tests import plain_http
from tests.e2e import processes
from tests.stack import Stack
from tests.usage import seconds_of
from tests.waiting import wait_until


def used(client: Client) -> UsageRow:
    (row,) = Accounting(client=client).usage(group_by=["run"]).rows
    assert (row.tenant, row.run, row.time) == (None, "killed", None)
    return row


def test_a_killed_gateway_forgets_and_repeats_no_usage(stack: Stack, client: Client) -> None:
    with plain_http.client(base_url=stack.url, headers={"Authorization": f"Bearer {stack.api_key}"}) as http:

        def told(box: Sandbox) -> dict[str, object]:
            return http.get(f"/api/v1/sandbox/{box.id}").json()

        lost = Sandbox.create(client=client, run="killed", cpu=0.5)
        (sidecar,) = processes.sidecars(stack)
        ended = Sandbox.create(client=client, run="killed", cpu=0.5)
        ended.delete()  # and its usage is nowhere but in the journal
        through = Sandbox.create(client=client, run="killed", cpu=0.5)
        shown = [told(ended)]
        stack.kill()
        os.kill(sidecar, signal.SIGKILL)
        stack.start()
        wait_until(lambda: told(lost)["status"] == "ERROR")
        through.delete()
        shown += [told(lost), told(through)]
        for _ in range(2):
            row = used(client)
            assert row.sandboxes == 3
            assert row.core_seconds == pytest.approx(0.5 * sum(map(seconds_of, shown)), abs=0.01)
            stack.kill()
            stack.start()
