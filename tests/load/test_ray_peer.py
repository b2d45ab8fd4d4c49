"""Ray's sandboxes as a peer: rollouts run in them, and nothing of Ray is left, also after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from images.oci import tree, write_archive, write_layer
from loadtests import own_network
from loadtests.ray_sandboxes.peer import PINNED, RayFailed, rollouts
from tests.executor.gvisor import NEEDS_RUNSC
from tests.leaks import groups_below, no_leaks
from tests.plugins.worker import CGROUPS
from tests.prime.environments import IndexUnreachable, pinned_environment
from tests.prime.not_installed import not_installed
from tests.roots import install
from tests.waiting import until

pytestmark = [
    *NEEDS_RUNSC,
    pytest.mark.slow,
    pytest.mark.alone,  # Ray gives up a start that takes half a minute
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(own_network.missing()), reason=str(own_network.missing())),
]


@pytest.fixture(autouse=True)
def raylets(tmp_path: Path) -> Iterator[Callable[[], list[bytes]]]:
    """Give the command lines of Ray's raylets; afterwards nothing of Ray may be there."""
    try:
        home = pinned_environment(PINNED).parent.parent
    except IndexUnreachable as error:
        not_installed("Ray", error)

    def processes(word: str) -> list[bytes]:
        found: list[bytes] = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                found.append(path.read_bytes())
        return [command for command in found if f"{home}/".encode() in command and word.encode() in command]

    before = directories()
    with no_leaks(marker=str(tmp_path)):
        yield lambda: processes("raylet")
    assert not processes("")
    assert directories() <= before


def directories() -> set[Path]:
    """The directories that Ray or its peer's runner make outside of the namespaces."""
    groups = {Path(parent, name) for parent, names in groups_below(CGROUPS) for name in names}
    return {*Path("/tmp").glob("sandlot-ray-*"), *(group for group in groups if group.match("ray-sandbox-*"))}


def archive(directory: Path, *programs: str) -> Path:
    """Write an image of these programs."""
    root = directory / "root"
    (root / "bin").mkdir(parents=True)
    install(root, *programs)
    layer = directory / "layer.tar"
    write_layer(layer, entries=tree(root, owner=(0, 0)), epoch=0)
    made = directory / "image.tar"
    write_archive(made, reference="sandlot.test/small:1", layers=[layer], config={}, epoch=0)
    return made


async def test_rollouts_run_in_both_ways(tmp_path: Path) -> None:
    found = await rollouts(archive(tmp_path, "sh", "sleep"), callers=2, seconds=5.0)
    assert set(found) == {"runtime", "actor"}
    assert found["runtime"].times
    assert found["runtime"].rate == len(found["runtime"].times) / 5
    assert all(0 < part < 5 for times in found["runtime"].times for part in times)


async def test_a_failed_create_is_told_in_ray_s_words(tmp_path: Path) -> None:
    with pytest.raises(RayFailed, match='error finding executable "sleep"'):
        await rollouts(archive(tmp_path, "sh"), callers=1, seconds=1.0)


async def test_cancelled_rollouts_end_with_all_of_ray(
    tmp_path: Path, raylets: Callable[[], list[bytes]]
) -> None:
    running = asyncio.create_task(rollouts(archive(tmp_path, "sh", "sleep"), callers=1, seconds=60.0))
    await until(raylets, seconds=120)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not raylets()
