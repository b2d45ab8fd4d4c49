"""The images of a data set: what each has, that they share their base, and which of them tasks get."""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot.models import ImageFailure, WarmupInfo
from sandlot_gateway.backends.local.images import ImageStore

from loadtests.load import dataset
from loadtests.load.cells import dataset_lines
from loadtests.load.events import Event
from loadtests.load.schedule import Popularity
from loadtests.load.summary import Span, of_phase
from loadtests.load.warming import Progress, Warmed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(dataset, "FOLDER", tmp_path / "dataset")
    return tmp_path / "dataset"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the files belong to it")
async def test_each_image_has_a_shell_and_its_own_name(folder: Path, tmp_path: Path) -> None:
    layout = dataset.layout(3)
    (tmp_path / "images").mkdir()
    store = ImageStore(tmp_path / "images")
    store.open()
    try:
        images = [await store.prepare(f"oci:{layout}:{dataset.tag(number)}") for number in range(3)]
    finally:
        await store.close(timeout=60)
    assert len({image.id for image in images}) == 3
    for number, image in enumerate(images):
        root = Path(image.lower[0])
        assert (root / "task/name").read_text() == f"task-{number:04}\n"
        assert os.access(root / "bin/sh", os.X_OK)
        assert image.workdir == "/task"
    found = dataset.unpacked(tmp_path)
    assert found["images_prepared"] == 3
    assert found["image_bytes"] > 3 * dataset.FILES * dataset.FILE_BYTES


def test_images_share_their_base_and_are_built_once(folder: Path) -> None:
    layout = dataset.layout(4)
    blobs = list((layout / "blobs/sha256").iterdir())
    assert len(blobs) == 1 + 4 * 3  # the base; of each image a layer, its configuration, its manifest
    written = (layout / "index.json").stat()
    assert dataset.layout(4) == layout
    assert (layout / "index.json").stat() == written
    assert dataset.layout(2) != layout
    assert sorted(path.name.partition("-")[0] for path in folder.iterdir()) == ["2", "4", "lock"]


def test_new_images_share_no_layer_and_no_name_with_any_built_before(folder: Path) -> None:
    def blobs(path: Path) -> set[str]:
        index = json.loads((path / "index.json").read_text())
        names = {entry["annotations"]["io.containerd.image.name"] for entry in index["manifests"]}
        return names | {blob.name for blob in (path / "blobs/sha256").iterdir()}

    with dataset.new_layout(2) as one, dataset.new_layout(2) as other:
        assert len(blobs(one)) == len(blobs(other)) == len(blobs(dataset.layout(2))) == 1 + 2 * 4
        assert not blobs(one) & blobs(other)
        assert not blobs(one) & blobs(dataset.layout(2))
    assert not one.exists()


def test_there_is_nothing_unpacked_in_a_cache_that_is_not_there(tmp_path: Path) -> None:
    assert dataset.unpacked(tmp_path / "none") == {"images_prepared": 0, "image_bytes": 0}


@given(count=st.integers(1, 300), zipf=st.floats(0, 3), number=st.integers(0, 10_000), seed=st.integers())
def test_a_task_gets_the_same_image_in_every_process(count: int, zipf: float, number: int, seed: int) -> None:
    picked = Popularity(count, zipf=zipf).pick(number, seed=seed)
    assert picked is not None
    assert 0 <= picked < count
    assert picked == Popularity(count, zipf=zipf).pick(number, seed=seed)


def test_without_images_there_is_nothing_to_pick() -> None:
    assert Popularity(0, zipf=1.1).pick(3, seed=1) is None


def test_popular_images_have_their_share() -> None:
    counts = Counter(Popularity(50, zipf=1.0).pick(number, seed=5) for number in range(20_000))
    shares = [counts[rank] / 20_000 for rank in range(4)]
    whole = sum(1 / rank for rank in range(1, 51))
    for rank, share in enumerate(shares, start=1):
        assert abs(share - 1 / rank / whole) < 0.015  # four standard deviations
    assert all(first > second for first, second in pairwise(shares))
    assert len(counts) == 50


def test_images_of_a_warm_up_weigh_what_tasks_use_of_them() -> None:
    assert Popularity(4, zipf=1.0).weights() == [480, 240, 160, 120]
    assert Popularity(3000, zipf=2.0).weights()[-1] == 1


def test_a_warm_up_tells_how_good_its_estimate_at_half_was() -> None:
    result = WarmupInfo(
        id="w", images=4, ready=3, failed=1, copies=8, bytes=9, errors=(ImageFailure("b", "is missing"),)
    )
    told = [Progress(1.0, 1, None), Progress(2.0, 2, 6.0), Progress(4.0, 3, 1.0)]
    warmed = Warmed(6.0, result, told)
    assert warmed.estimate == 1.5
    assert Warmed(6.0, result, told[:1]).estimate is None
    span = Span(name="warm_up", begun=0, ended=7, done=[], supplied={"images_prepared": 8}, warmed=warmed)
    found = of_phase(span, events=[], samples=[])
    assert found["warm_up"]["failed"] == 1
    assert list(dataset_lines(found)) == [
        "3 of 4 ready in 8 copies after 6.00 s; estimate at half of them ÷ the time then left 1.50; b: is missing",
        "8 prepared",
    ]


def test_a_phase_tells_what_its_nodes_pulled() -> None:
    event = Event(phase="slots", process=0, number=0, kind="create", intended=0, began=0, ended=1, image="a")
    made = {"images_prepared": 3, "bytes_pulled": 5 << 19, "image_bytes": 7 << 20, "pods": 0}
    for supplied, pulled in ((made, ["2.5 MiB pulled"]), ({**made, "bytes_pulled": 0}, ["0.0 MiB pulled"])):
        span = Span(name="slots", begun=0, ended=1, done=[], supplied=supplied)
        (line,) = dataset_lines(of_phase(span, events=[event], samples=[]))
        assert [part for part in line.split(", ") if "pulled" in part] == pulled
    del made["bytes_pulled"]  # a local gateway reads the images from a directory
    span = Span(name="slots", begun=0, ended=1, done=[], supplied=made)
    (line,) = dataset_lines(of_phase(span, events=[event], samples=[]))
    assert "pulled" not in line
    assert "7.0 MiB on disk" in line
