"""A full disk, for commands and for uploads."""

from __future__ import annotations

import pytest

from tests.sidecar.calls import usable
from tests.sidecar.support import Sidecar, tells_why

pytestmark = pytest.mark.root


async def test_a_full_disk_is_a_verdict(box: Sidecar) -> None:
    answer = await box.exec("dd if=/dev/zero of=/fill bs=1M")
    assert answer["verdict"] == "disk_full"
    assert "No space left" in answer["stderr"]
    tells_why(answer, "the sandbox's disk was full")
    await usable(box)
    await box.exec("rm /fill")
    assert (await box.exec("exit 1"))["verdict"] == "exited"
