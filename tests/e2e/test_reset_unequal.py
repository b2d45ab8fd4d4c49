"""A reset that cannot be proven equal says what differs: to who asked, in the sandbox's end, in the gateway's log."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandlot import Client, Sandbox, ServerError

from tests.e2e import processes
from tests.stack import Stack


def test_what_differs_is_named(stack: Stack, client: Client) -> None:
    box = Sandbox.create(client=client)
    (sidecar,) = processes.sidecars(stack)
    (instance,) = (stack.state_dir / "instances").iterdir()
    planted = f"r{processes.executor(sidecar)}-planted"
    for group in Path("/sys/fs/cgroup").glob(f"*/sandlot/{instance.name}"):
        (group / planted).mkdir(exist_ok=True)  # one hierarchy may be there under two names
    with pytest.raises(ServerError, match=f"not_equal: .*: control group {planted}$"):
        box.reset()
    info = box.refresh()
    assert (info.ended, info.verdict) == (True, "reset_failed")
    assert f"control group {planted}" in str(info.message)
    assert f"equal to fresh: control group {planted}" in stack.log()
