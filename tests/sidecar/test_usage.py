"""What a sandbox uses now, by the counters of its control group and its file system."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.root

MIB = 1 << 20
WORK = "head -c 8388608 /dev/zero >/srv/data; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"


async def test_the_usage_tells_what_commands_did_and_is_no_use_itself(make) -> None:
    box = await make(claim={"limits": {"memory": 512 * MIB, "disk": 64 * MIB}})

    async def usage() -> dict[str, float]:
        return (await box.instance("GET", "/v1/usage")).json()

    before = await usage()
    assert (await box.call("POST", "/v1/exec", json={"command": WORK})).status_code == 200
    active = (await box.call("GET", "/v1/state")).json()["last_active_at"]
    after = await usage()
    assert after["cpu"] > before["cpu"]
    assert 0 < after["cache"] <= after["memory"] <= 512 * MIB
    assert after["disk"] >= before["disk"] + 8 * MIB
    assert after["disk_size"] == pytest.approx(64 * MIB, rel=0.01)
    assert (await box.call("GET", "/v1/state")).json()["last_active_at"] == active
    assert (await box.call("GET", "/v1/usage")).status_code == 401
