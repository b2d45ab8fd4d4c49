"""A copy of the directory of checkpoints, made and brought back by the commands of docs/operate.md."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.store import Store

from tests.gateway.checkpoint_documents import checkpoint

PAGE = Path(__file__).parents[2] / "docs" / "operate.md"
END = b"\0\0\xff\xff"


def program(name: str, directory: Path) -> list[str]:
    found = re.search(rf"^{name}='(.+)'$", PAGE.read_text(), re.MULTILINE)
    assert found is not None
    return [sys.executable, "-c", found[1].replace("/var/lib/sandlot-checkpoints", str(directory))]


def saved(store: Store, blocks: list[bytes]) -> tuple[Checkpoint, bytes]:
    made = checkpoint()
    part = store.begin(made)
    part.write(b"".join(blocks))
    store.finish(made, part)
    return made, b"".join(blocks)


def test_a_copy_has_all_that_is_durable(tmp_path: Path) -> None:
    source, target, copy = tmp_path / "source", tmp_path / "target", tmp_path / "copy.tar"
    store = Store(source, limits=StoreLimits())
    blocks = [random.randbytes(20_000) + END for _ in range(20)]
    all_made = [
        saved(store, [*blocks[:number], *blocks[number + 1 :], random.randbytes(9000) + END])
        for number in range(3)
    ]
    pending = checkpoint()
    with closing(store.begin(pending)) as part:
        part.write(b"".join(blocks[:5]))
        with copy.open("wb") as to:
            subprocess.run(program("copy", source), stdout=to, check=True)
    target.mkdir()
    with copy.open("rb") as data:
        subprocess.run(program("back", target), stdin=data, check=True)
    restored = Store(target, limits=StoreLimits())
    assert restored.used() <= store.used()
    states = {one.id: one.state for one in restored.all()}
    assert states == {**{made.id: "DURABLE" for made, _ in all_made}, pending.id: "FAILED"}
    for made, content in all_made:
        restored_one = restored.get(made.id)
        assert restored_one is not None
        with closing(restored.open(restored_one)) as archive:
            assert b"".join(iter(lambda archive=archive: archive.read(10_000), b"")) == content
    # One that becomes DURABLE during a copy has its document in it from before its files.
    with tarfile.open(copy) as archive:
        names = archive.getnames()
    for made, _ in all_made:
        own = [names.index(name) for name in names if name.startswith(f"./{made.id}.packs.")]
        assert own
        assert names.index(f"./{made.id}.json") < min(own)
