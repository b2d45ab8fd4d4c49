"""How much of a machine's memory copies may take, and for whom they count as long as sandboxes mount them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sandlot_gateway.checkpoints.copies_in_use import CopiesInUse
from sandlot_gateway.checkpoints.memory import FLOOR, Memory, available, room_of
from sandlot_gateway.checkpoints.rules import StoreFull, StoreLimits
from sandlot_gateway.checkpoints.store import Store
from sandlot_gateway.checkpoints.transfer import Fetched, Refused

from tests.gateway.checkpoint_documents import MANIFEST, checkpoint

GIB = 1 << 30
Machine = Callable[[dict[str, str]], Path]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with 8 GiB available, and these files."""

    def made(files: dict[str, str]) -> Path:
        of_machine = {"proc/meminfo": f"MemTotal: 1 kB\nMemAvailable: {8 * GIB >> 10} kB\n", **files}
        for name, text in of_machine.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return made


def cgroup(place: str, *, limit: int | str, used: int, cache: int = 0) -> dict[str, str]:
    top = f"sys/fs/cgroup/{place}"
    return {
        f"{top}/memory.max": f"{limit}\n",
        f"{top}/memory.current": f"{used}\n",
        f"{top}/memory.stat": f"anon 1\ninactive_file {cache}\n",
    }


def cgroup_v1(place: str, *, limit: int, used: int) -> dict[str, str]:
    top = f"sys/fs/cgroup/memory/{place}"
    return {
        f"{top}/memory.limit_in_bytes": f"{limit}\n",
        f"{top}/memory.usage_in_bytes": f"{used}\n",
        f"{top}/memory.stat": "total_inactive_file 5\n",
    }


UNLIMITED = cgroup("a/b", limit="max", used=GIB)


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, 8 * GIB),
        ({"proc/self/cgroup": "0::/a/b\n", **UNLIMITED}, 8 * GIB),
        ({"proc/self/cgroup": "0::/a/b\n", **UNLIMITED, **cgroup("a", limit=3 * GIB, used=GIB, cache=7)}, 2 * GIB + 7),
        ({"proc/self/cgroup": "0::/\n", **cgroup(".", limit=GIB, used=GIB + 1)}, 0),
        (
            {"proc/self/cgroup": "4:cpu:/x\n3:memory:/a\n0::/\n", **cgroup_v1("a", limit=2 * GIB, used=GIB)},
            GIB + 5,
        ),
    ],
    ids=["no cgroup", "no limit", "limit above", "of a container", "v1"],
)  # fmt: skip
def test_the_memory_of_the_machine_and_of_each_cgroup_counts(
    machine: Machine, files: dict[str, str], left: int
) -> None:
    assert available(machine(files)) == left


def test_copies_at_once_share_half_of_the_memory(machine: Machine) -> None:
    memory = Memory(root=machine({}))
    with ExitStack() as held:
        held.enter_context(memory.reserved(2 * GIB))
        with pytest.raises(Refused, match="memory"), memory.reserved(2 * GIB + 1):
            pass
        held.enter_context(memory.reserved(2 * GIB))
    with memory.reserved(4 * GIB):
        pass


def test_some_memory_stays_free(machine: Machine) -> None:
    memory = Memory(root=machine({"proc/meminfo": f"MemAvailable: {(FLOOR + (100 << 20)) >> 10} kB\n"}))
    with memory.reserved(100 << 20):
        pass
    with pytest.raises(Refused), memory.reserved((100 << 20) + 1):
        pass
    assert room_of(Fetched(entries=1000, bytes=GIB)) > GIB + 1000 * 4096


def test_a_copy_counts_until_no_sandbox_began_with_it(tmp_path: Path) -> None:
    users = {"cp-1", "cp-2"}
    copies = CopiesInUse(tmp_path / "copies", users=lambda: users)
    store = Store(
        tmp_path / "store", limits=StoreLimits(tenant_bytes=lambda tenant: 100, copies=copies.sizes)
    )
    copies.add("cp-1", tenant="default", size=60)
    assert store.used() == 0  # its checkpoint counts
    copies.let_go("cp-1")
    assert (store.used(), store.usage().get("other", 0)) == (60, 0)
    part = store.begin(checkpoint())
    with pytest.raises(StoreFull):
        part.reserve(41)
    part.discard()
    users.clear()
    assert store.used() == 0
    assert list((tmp_path / "copies").iterdir()) == []


def test_the_next_gateway_knows_a_copy_before_it_has_found_the_sandboxes(tmp_path: Path) -> None:
    CopiesInUse(tmp_path, users=lambda: set()).add("cp-1", tenant="a", size=60)
    after = CopiesInUse(tmp_path, users=lambda: set())
    assert after.sizes() == [("a", 60)]


def test_a_part_counts_for_what_it_reserved_last(tmp_path: Path) -> None:
    store = Store(tmp_path, limits=StoreLimits(tenant_bytes=lambda tenant: 1000))
    made = checkpoint()
    part = store.begin(made)
    part.reserve(900)
    part.reserve(1000)
    part.reserve(0)
    part.write(b"archive")
    store.finish(made, part)
    with closing(store.open(made)) as archive:
        assert archive.read(100) == b"archive"
    assert made.stored_bytes == 7 + MANIFEST
