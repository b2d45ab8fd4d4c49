"""A backup's file: what is written reads back, and what is truncated, foreign or hostile is refused with a reason."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sandlot.cli.backups import told
from sandlot.cli.cluster.backup.archive import Backup, read, write
from sandlot.cli.cluster.backup.items import BadBackup, Item, Kept
from sandlot.cli.cluster.backup.restoring import Did, Outcome
from sandlot.cli.cluster.doc import Doc
from sandlot.cli.cluster.release import Release

RELEASE = Release("sandlot", "sandlot", "sandlot-sandboxes")
POOL = {
    "apiVersion": "sandlot.dev/v1alpha1",
    "kind": "SandboxPool",
    "metadata": {"name": "numpy", "namespace": "sandlot-sandboxes"},
    "spec": {"size": 2, "template": {"image": "numpy"}},
}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "keys", "namespace": "sandlot"},
    "type": "Opaque",
    "data": {"api-key": "a2V5"},
}
USAGE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": "sandlot-usage-1-records",
        "namespace": "sandlot-sandboxes",
        "labels": {
            "app.kubernetes.io/name": "sandlot",
            "app.kubernetes.io/component": "usage",
            "sandlot.dev/usage-day": "1",
        },
    },
    "binaryData": {"sums": b64encode(zlib.compress(b"{}")).decode()},
}
LEASE = {"tenant": "training", "id": "grpo-7", "epoch": 3, "renewed_at": 5.0}
RUN: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": f"sandlot-run-{hashlib.sha256(b'training/grpo-7').hexdigest()[:32]}",
        "namespace": "sandlot-sandboxes",
        "labels": {"app.kubernetes.io/name": "sandlot", "app.kubernetes.io/component": "run"},
    },
    "data": {"lease": json.dumps(LEASE)},
}
BACKUP = Backup(
    RELEASE,
    "2026-11-29T01:00:00Z",
    "0.1.0",
    "sandlot-0.1.0",
    {"gateway": {"replicas": 3}},
    (Item(Kept.SECRET, SECRET), Item(Kept.USAGE, USAGE), Item(Kept.RUN, RUN), Item(Kept.POOL, POOL)),
    with_secrets=True,
)


def file_of(backup: Backup, directory: Path) -> Path:
    path = directory / "backup"
    with path.open("wb") as file:
        write(file, backup)
    return path


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        files = {member.name: tar.extractfile(member) for member in tar}
        return {name: file.read() for name, file in files.items() if file is not None}


def repacked(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Change the documents, without their digests."""
    documents: dict[str, Any] = {
        name: [json.loads(line) for line in data.splitlines()] if name.endswith("l") else json.loads(data)
        for name, data in members(path).items()
    }
    change(documents)
    texts = {
        name: "".join(f"{json.dumps(one)}\n" for one in document)
        if name.endswith("l")
        else f"{json.dumps(document, indent=1)}\n"
        for name, document in documents.items()
    }
    return packed(path, {name: text.encode() for name, text in texts.items()})


def packed(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    assert read(file_of(BACKUP, tmp_path)) == BACKUP


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = file_of(BACKUP, tmp_path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        with pytest.raises(BadBackup, match="no whole backup"):
            read(path)


def test_a_changed_document_is_refused(tmp_path: Path) -> None:
    def change(documents: dict[str, Any]) -> None:
        documents["resources.jsonl"][-1]["spec"]["size"] = 3

    with pytest.raises(BadBackup, match=r"is damaged, 'resources\.jsonl'"):
        read(repacked(file_of(BACKUP, tmp_path), change))


def test_another_format_names_the_version_to_use(tmp_path: Path) -> None:
    path = repacked(
        file_of(BACKUP, tmp_path), lambda all: all["manifest.json"].update(version=3, sandlot="0.9.0")
    )
    with pytest.raises(BadBackup, match=r"format '3', and this command line reads 2: .* of '0\.9\.0'"):
        read(path)


def test_an_earlier_command_line_reads_a_backup_without_runs(tmp_path: Path) -> None:
    for items, version in ((BACKUP.items, 2), (BACKUP.items[:2], 1)):
        path = file_of(replace(BACKUP, items=items), tmp_path)
        assert json.loads(members(path)["manifest.json"])["version"] == version
        assert read(path).items == items


@pytest.mark.parametrize(
    "data",
    [b"", b"mine", gzip.compress(b"mine"), gzip.compress(bytes(1 << 20))],
    ids=["empty", "text", "no archive", "zeros"],
)
def test_another_file_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(data)
    with pytest.raises(BadBackup):
        read(path)


@pytest.mark.parametrize("size", [1000, 1 << 40])
@pytest.mark.parametrize("field", ["GNU.sparse.size", "size", "comment"])
def test_an_entry_that_claims_another_size_is_refused(field: str, size: int, tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    header = tarfile.TarInfo("manifest.json")
    header.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.map": "0,1", field: str(size)}
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(header, io.BytesIO())
    with pytest.raises(BadBackup, match="no backup has"):
        read(path)


@pytest.mark.parametrize("name", ["manifest.json", "more.json"])
def test_an_entry_that_no_backup_has_is_refused(name: str, tmp_path: Path) -> None:
    path = file_of(BACKUP, tmp_path)
    data = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(tarfile.TarInfo(name).tobuf() + data))
    with pytest.raises(BadBackup, match="no backup has"):
        read(path)


EXPANDING = {
    "many values": b"[" + b"[]," * 1_200_000 + b"[]]\n",
    "wide characters": b'{"a":"\\ud83d\\ude00' + b"x" * (3 << 20) + b'"}\n',
    "a long line": b'{"a":"' + b"x" * (5 << 20) + b'"}\n',
}


@pytest.mark.parametrize("what", EXPANDING)
def test_a_file_that_takes_more_memory_than_a_backup_is_refused(what: str, tmp_path: Path) -> None:
    """By its text, before it is parsed; its writer knows the digests, too."""
    path = file_of(BACKUP, tmp_path)
    there = members(path)
    line = EXPANDING[what]
    there["resources.jsonl"] = line * (22 if what == "wide characters" else 1)
    manifest = json.loads(there["manifest.json"])
    manifest["sha256"]["resources.jsonl"] = hashlib.sha256(there["resources.jsonl"]).hexdigest()
    there["manifest.json"] = json.dumps(manifest).encode()
    packed(path, there)
    with pytest.raises(BadBackup, match=r"more memory|too large"):
        read(path)


def _lease(**changed: Any) -> Item:
    return Item(Kept.RUN, RUN | {"data": {"lease": json.dumps(LEASE | changed)}})


def _usage(**changed: Any) -> Item:
    return Item(Kept.USAGE, USAGE | changed)


HOSTILE: dict[str, tuple[Item, str]] = {
    "a lease of another run": (_lease(id="grpo-8"), "is no lease"),
    "a lease of another tenant": (_lease(tenant="other"), "is no lease"),
    "a lease that is too long": (_lease(metadata={"x": "y" * (64 << 10)}), "is no lease"),
    "a lease with more": (Item(Kept.RUN, RUN | {"data": RUN["data"] | {"x": "y"}}), "is no lease"),
    "a lease that is no JSON": (Item(Kept.RUN, RUN | {"data": {"lease": "["}}), "is no lease"),
    "another kind": (
        Item(Kept.POOL, POOL | {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}),
        "a kind that no backup has",
    ),
    "another namespace": (
        Item(Kept.SECRET, SECRET | {"metadata": {"name": "keys", "namespace": "kube-system"}}),
        "outside of its release",
    ),
    "a pool outside of the sandboxes": (
        Item(Kept.POOL, POOL | {"metadata": {"name": "numpy", "namespace": "sandlot"}}),
        "outside of its release",
    ),
    "a path for a name": (
        Item(Kept.POOL, POOL | {"metadata": {"name": "../x", "namespace": "sandlot-sandboxes"}}),
        "an invalid name",
    ),
    "a token of an account": (
        Item(Kept.SECRET, SECRET | {"type": "kubernetes.io/service-account-token"}),
        "of the type 'kubernetes.io/service-account-token'",
    ),
    "a ConfigMap of another name": (_usage(metadata=USAGE["metadata"] | {"name": "other"}), "has no usage"),
    "usage of another day": (
        _usage(metadata=USAGE["metadata"] | {"name": "sandlot-usage-2-x"}),
        "has no usage",
    ),
    "usage without its labels": (_usage(metadata=USAGE["metadata"] | {"labels": {}}), "has no usage"),
    "usage with text": (_usage(data={"x": "y"}), "has no usage"),
    "usage with another key": (_usage(binaryData=USAGE["binaryData"] | {"x": "eQ=="}), "has no usage"),
    "usage that is not packed": (_usage(binaryData={"sums": "eQ=="}), "has no usage"),
    "usage that unpacks to too much": (
        _usage(binaryData={"sums": b64encode(zlib.compress(bytes(65 << 20), level=1)).decode()}),
        "has no usage",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_no_backup_has_is_refused(what: str, tmp_path: Path) -> None:
    """Its writer knows the digests, too."""
    bad, said = HOSTILE[what]
    with pytest.raises(BadBackup, match=said):
        read(file_of(replace(BACKUP, items=(bad,)), tmp_path))


def test_identity_owners_and_status_are_left_out(tmp_path: Path) -> None:
    live = POOL["metadata"] | {
        "uid": "u",
        "resourceVersion": "1",
        "ownerReferences": [{"uid": "gone"}],
        "finalizers": ["x"],
        "deletionTimestamp": "2026-11-29T01:00:00Z",
    }
    bad = Item(Kept.POOL, POOL | {"metadata": live, "status": {"ready": 2}})
    (one,) = read(file_of(replace(BACKUP, items=(bad,)), tmp_path)).items
    assert one.doc == Doc(POOL)


@pytest.mark.parametrize("json", [False, True])
def test_an_interrupted_restore_says_what_it_did(json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def outcomes() -> Iterator[Outcome]:
        yield Outcome(Item(Kept.POOL, POOL), Did.CREATED)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        told(outcomes(), dry_run=False, json=json)
    said = capsys.readouterr().out
    assert "created" in said
    assert "pool sandlot-sandboxes/numpy" in said
