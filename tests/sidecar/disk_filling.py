"""Ways to fill a pod's disk, and what has to become of each."""

from __future__ import annotations

from tests.sidecar.support import Sidecar
from tests.waiting import until


async def check_full_disk(box: Sidecar) -> None:
    """In a pod with a disk limit of 64 MiB for /work, a volume that has no limit that the kernel knows of."""
    fill = (
        "i=0; while true; do i=$((i + 1)); head -c 4194304 /dev/zero > /work/$i || exit 1; sleep 0.05; done"
    )
    answer = await box.exec(fill, timeout=60)
    assert answer["verdict"] == "disk_full", answer
    refused = await box.call("PUT", "/v1/files?path=/work/more", content=b"x")
    assert (refused.status_code, refused.json()["error"]) == (507, "disk_full")
    # What makes room is not ended, though it takes a while.
    answer = await box.exec("for i in 1 2 3; do sleep 1; done; rm /work/*; sleep 2; echo room", timeout=60)
    assert (answer["verdict"], answer["stdout"]) == ("exited", "room\n"), answer
    # What it holds was looked at last while that command ran, and is looked at once more.
    await until(lambda: takes_a_file(box))


async def takes_a_file(box: Sidecar) -> bool:
    return (await box.call("PUT", "/v1/files?path=/work/more", content=b"x")).status_code == 200


# Held open without a name: 4 MiB at a time, until the disk refuses or somebody ends it.
UNLINKED = """
import os, time
held = []
while True:
    fd = os.open(f"/work/{len(held)}", os.O_CREAT | os.O_RDWR)
    os.unlink(f"/work/{len(held)}")
    os.write(fd, bytes(4 << 20))
    held.append(fd)
    time.sleep(0.05)
"""
EMPTY = """
import os
for number in range(1 << 20):
    if number % 1000 == 0:
        os.makedirs(f"/work/empty/{number}")
    os.close(os.open(f"/work/empty/{number // 1000 * 1000}/{number}", os.O_CREAT | os.O_WRONLY))
"""


async def check_evasions(box: Sidecar, *, files: int, kernel: bool = False) -> None:
    """As `check_full_disk`: what a walk of names or a sum of bytes does not see is counted, too."""
    answer = await box.exec(["python3", "-c", UNLINKED], timeout=60)
    # Where the kernel refuses what is too much, the command ends by itself, and its files with it.
    refused = answer["exit_code"] == 1 and "No space left" in answer["stderr"]
    assert refused if kernel else answer["verdict"] == "disk_full", answer
    answer = await box.exec(["python3", "-c", EMPTY], timeout=200)
    assert answer["verdict"] == "disk_full", answer
    assert answer["stderr"].endswith(f"sandlot: {answer['message']}\n"), answer
    answer = await box.exec("rm -rf /work/empty; sleep 2; echo room", timeout=200)
    assert (answer["verdict"], answer["stdout"]) == ("exited", "room\n"), answer
    made = await box.exec(["python3", "-c", EMPTY.replace("1 << 20", str(files // 2))], timeout=200)
    assert made["verdict"] == "exited", made
