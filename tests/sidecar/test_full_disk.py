"""A full disk, for commands and for uploads, and what else makes a write fail."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator

import pytest
from sandlot_sidecar.server import file_write

from tests.sidecar.calls import no_leftover, usable
from tests.sidecar.support import Sidecar, tells_why
from tests.waiting import until

pytestmark = pytest.mark.root


async def test_a_full_disk_is_a_verdict(box: Sidecar) -> None:
    answer = await box.exec("dd if=/dev/zero of=/fill bs=1M")
    assert answer["verdict"] == "disk_full"
    assert "No space left" in answer["stderr"]
    tells_why(answer, "the sandbox's disk was full")
    await usable(box)
    await box.exec("rm /fill")
    assert (await box.exec("exit 1"))["verdict"] == "exited"


async def test_a_full_disk_is_507_and_the_sandbox_stays_usable(box: Sidecar) -> None:
    async def zeros() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield bytes(1 << 20)

    answer = await box.call("PUT", "/v1/files?path=/fill", content=zeros())
    assert (answer.status_code, answer.json()["error"]) == (507, "disk_full")
    await until(lambda: no_leftover(box, "/"))
    assert (await box.exec("echo works > /tmp/x && cat /tmp/x"))["stdout"] == "works\n"


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [
        (errno.ENOSPC, 507, "disk_full"), (errno.EDQUOT, 507, "disk_full"), (errno.EFBIG, 413, "too_large"),
        (errno.ENOTDIR, 409, "not_a_directory"), (errno.ELOOP, 400, "bad_request"),
        (errno.ETXTBSY, 403, "permission"), (errno.EROFS, 403, "permission"), (errno.EPERM, 403, "permission"),
        (errno.EACCES, 403, "permission"), (errno.EIO, 503, "io_error"), (errno.ENOMEM, 503, "io_error"),
    ],
)  # fmt: skip
def test_a_write_that_code_can_make_fail_is_no_failure_of_the_infrastructure(
    number: int, status: int, code: str
) -> None:
    error = file_write._disk_error(OSError(number, os.strerror(number)), "/f")
    assert (error.status, error.code) == (status, code)
