"""File-heavy work on an image's files: in a slot, against a plain container of that image on the same node, in turn."""

from __future__ import annotations

from typing import Any

from loadtests.cluster import agents
from loadtests.cluster.file_image import pushed
from loadtests.cluster.file_rows import CPU, plain, pod_object
from loadtests.cluster.site import Site
from loadtests.local.file_rows import DISK, MEMORY, Measure, Seconds, compare, in_sandbox
from loadtests.reading import Reading

PARTS = ("find", "tar", "git_status", "pip")
ROWS = tuple(f"slot_files_{part}" for part in PARTS)
ROOT = "/usr"  # nearly all of the image's files


async def slot_files(site: Site, runtime: str) -> dict[str, Reading]:
    """Measure the rows `slot_files_PART_RUNTIME`. Both sides read the layers that the node has once."""
    image = await pushed()
    await agents.prepare(site, [image])
    template = {"memory": MEMORY, "disk": DISK}
    async with site.pool(runtime, size=1, cpu=CPU, template=template, slots=True, reuse="tenant") as pool:
        box = await pool.create(image)
        pod = await pod_object(pool, box)
        check_slot(pod, image=image, warm=box.info.pool_hit)
        await pool.full(1)
        async with plain(site, pod, image=image) as in_plain:
            return await measured(
                runtime,
                in_slot=lambda: in_sandbox(box, "python3", ROOT),
                in_container=lambda: in_plain(ROOT),
            )


def check_slot(pod: dict[str, Any], *, image: str, warm: bool) -> None:
    """Raise RuntimeError if the sandbox is not in a slot that was given its image: the row would compare nothing."""
    own = next(each["image"] for each in pod["spec"]["containers"] if each["name"] == "sandbox")
    if own == image or not warm:
        how = "with this image from its start" if own == image else "for this create"
        raise RuntimeError(f"the sandbox of {image} is in a pod that was started {how}, not in a slot")


async def measured(runtime: str, *, in_slot: Measure, in_container: Measure) -> dict[str, Reading]:
    """Compare both in turn. Raises RuntimeError if they see different files."""
    ours: list[float] = []
    theirs: list[float] = []

    async def counted(measure: Measure, counts: list[float]) -> Seconds:
        found = await measure()
        counts.append(found["files"])
        return found

    rows = {part: f"{row}_{runtime}" for part, row in zip(PARTS, ROWS, strict=True)}
    readings = await compare(
        rows, ours=lambda: counted(in_slot, ours), floor=lambda: counted(in_container, theirs)
    )
    if ours != theirs:
        raise RuntimeError(
            f"{ROOT} has {ours} entries in the slot and {theirs} in the container, round by round: "
            "their times do not compare; look for what is missing or added with `find` in both"
        )
    return readings
