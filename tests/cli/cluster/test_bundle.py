"""The bounds of a support bundle: its size, the texts that go into it, and its file."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from sandlot.cli.cluster import bundle as bundles
from sandlot.cli.cluster.api import Api, Unread
from sandlot.cli.cluster.bundle import Bundle, created
from sandlot.cli.cluster.deadline import Deadline
from sandlot.cli.cluster.kubectl import Kubectl
from sandlot.cli.cluster.redaction import Redactor
from sandlot.cli.cluster.sources import wanted
from sandlot.cli.cluster.world import Kind

from tests.cli.cluster.breaks import INSIDE, OWN
from tests.cli.cluster.worlds import Cluster, pod

SECRET = "swordfish-9"
NOWHERE = Path("/nowhere")
KUBECTL = Kubectl(str(NOWHERE), (), "v1.36.3", "test")


def contents(file: io.BytesIO) -> dict[str, str]:
    file.seek(0)
    with tarfile.open(fileobj=file) as tar:
        members = {member.name: tar.extractfile(member) for member in tar}
        return {name: stream.read().decode() for name, stream in members.items() if stream is not None}


def test_what_has_no_room_is_left_out_and_listed() -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        bundle = Bundle(tar, Redactor([SECRET]), "root", left=200)
        bundle.add("logs/large.log", "x" * 201)
        bundle.add("metrics/gateway-g-1.txt", f'sandlot_x{{of="{SECRET}"}} 1.0\n')
        bundle.add("resources/pods.json", json.dumps([{"token": "not known", "message": f"<{SECRET}>"}]))
        bundle.add("logs/unread.log", Unread(f"502: {SECRET}"))
        bundle.close()
    texts = contents(file)
    assert set(texts) == {
        "root/metrics/gateway-g-1.txt",
        "root/resources/pods.json",
        "root/not-included.txt",
    }
    assert json.loads(texts["root/resources/pods.json"]) == [{"token": "(removed)", "message": "<(removed)>"}]
    lacking = texts["root/not-included.txt"]
    assert "logs/large.log: 201 bytes, more than the bundle has room for" in lacking
    assert "logs/unread.log: 502: (removed)" in lacking
    assert all(SECRET not in text for text in texts.values())


def test_a_full_bundle_reads_nothing_more() -> None:
    with tarfile.open(fileobj=io.BytesIO(), mode="w:gz") as tar:
        assert Bundle(tar, Redactor(), "root").read(("logs/a.log", lambda: "text")) == "text"
        full = Bundle(tar, Redactor(), "root", left=100)
        assert full.read(("logs/a.log", lambda: pytest.fail("it reads"))) == Unread("the bundle is full")


def test_after_the_deadline_nothing_is_read_and_all_of_it_is_listed() -> None:
    cluster, file = Cluster(), io.BytesIO()
    api = Api(NOWHERE, NOWHERE, Deadline.after(0))
    lacking = bundles.write(
        file, root="root", kubectl=KUBECTL, api=api, world=cluster.read(), findings=cluster.findings()
    )
    texts = contents(file)
    assert "root/doctor.txt" in texts
    assert f"root/resources/{INSIDE}/pods.json" in texts, "which the checks had read before"
    assert texts["root/not-included.txt"].splitlines() == lacking
    for what in (
        f"resources/{INSIDE}/events.json",
        f"logs/{INSIDE}/i-1/sidecar.log",
        f"values of Secrets in {OWN}",
    ):
        assert f"{what}: the time was over (--timeout)" in lacking


def test_small_and_telling_things_come_before_the_logs_of_each_node() -> None:
    cluster = Cluster()
    inside = cluster.objects_of(Kind.PODS, INSIDE)
    containers = {"containers": [{"name": "main"}]}
    for raw in cluster.objects_of(Kind.PODS, OWN):
        raw["spec"] |= containers
    for component in ("node-agent", "gvisor-installer"):
        agents = [pod(f"{component}-{number}", component) for number in range(30)]
        inside[:0] = [raw | {"spec": containers} for raw in agents]
    paths = [path for path, _ in wanted(KUBECTL, Api(NOWHERE, NOWHERE), cluster.read())]

    def places(start: str) -> list[int]:
        return [place for place, path in enumerate(paths) if path.startswith(start)]

    order = [
        places(f"resources/{INSIDE}/events.json"),
        places("metrics/gateway-g-1.txt"),
        places(f"logs/{OWN}/g-1/main.log"),
        places(f"logs/{INSIDE}/i-1/sidecar.log"),
        places("metrics/node-agent"),
        places(f"logs/{INSIDE}/gvisor-installer"),
    ]
    assert [len(one) for one in order] == [1, 1, 1, 1, 20, 20]
    assert [one[0] for one in order[:4]] == sorted(one[0] for one in order[:4])
    assert order[3][0] < min(order[4][0], order[5][0])
    assert len(places(f"logs/{INSIDE}/node-agent")) == 20


def test_an_archive_that_does_not_become_whole_does_not_stay(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"

    def half() -> None:
        with created(path) as file:
            file.write(b"half")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk"):
        half()
    assert not path.exists()
    with created(path) as file:
        file.write(b"whole")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"whole", 0o600)
    with pytest.raises(FileExistsError), created(path):
        pytest.fail("it overwrites a file")
    assert path.read_bytes() == b"whole"
