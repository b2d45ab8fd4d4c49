"""The copied .proto files say the same as the originals, which are in Go's module cache where containerd was built."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

ROOT = Path(__file__).parents[2]
PLACE = "sandlot_node/protos"
CONTAINERD, CRI = "github.com/containerd/containerd/api@v1.12.0", "k8s.io/cri-api@v0.37.0"
# The original of each of our files.
ORIGINALS = {
    "snapshots": "services/snapshots/v1/snapshots.proto",
    "content": "services/content/v1/content.proto",
    "leases": "services/leases/v1/leases.proto",
    "images": "services/images/v1/images.proto",
    "mount": "types/mount.proto",
    "descriptor": "types/descriptor.proto",
}

pytestmark = pytest.mark.programs


def module(name: str) -> Path:
    try:
        done = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("needs Go, whose module cache has the originals")
    found = Path(done.stdout.strip()) / name
    if not found.is_dir():
        pytest.skip("needs containerd's modules in Go's cache (`make cluster` builds containerd from them)")
    return found


def parsed(source: Path, name: str, out: Path) -> FileDescriptorProto:
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{source}", f"--descriptor_set_out={out}", name]
    subprocess.run(command, check=True)
    (file,) = FileDescriptorSet.FromString(out.read_bytes()).file
    return file


@pytest.mark.parametrize("name", sorted(ORIGINALS))
def test_a_copy_differs_by_the_paths_of_imports_alone(name: str, tmp_path: Path) -> None:
    theirs = parsed(module(CONTAINERD), ORIGINALS[name], tmp_path / "theirs")
    ours = parsed(ROOT / "proto" / "node", f"{PLACE}/{name}.proto", tmp_path / "ours")
    theirs.name = ours.name
    theirs.dependency[:] = [re.sub(r"^types/", f"{PLACE}/", path) for path in theirs.dependency]
    assert ours == theirs


def test_the_excerpt_of_cri_has_its_names_numbers_and_types(tmp_path: Path) -> None:
    theirs = parsed(module(CRI), "pkg/apis/runtime/v1/api.proto", tmp_path / "theirs")
    ours = parsed(ROOT / "proto" / "node", f"{PLACE}/cri.proto", tmp_path / "ours")
    assert ours.package == theirs.package
    original = {message.name: message for message in theirs.message_type}
    for message in ours.message_type:
        _is_part(message, original[message.name])
    assert [enum for enum in theirs.enum_type if enum.name == "PodSandboxState"] == list(ours.enum_type)
    methods = {(service.name, method.name): method for service in theirs.service for method in service.method}
    for service in ours.service:
        for method in service.method:
            assert method == methods[service.name, method.name]


def _is_part(ours: DescriptorProto, theirs: DescriptorProto) -> None:
    fields = {field.number: field for field in theirs.field}
    for field in ours.field:
        assert field == fields[field.number], ours.name
    nested = {message.name: message for message in theirs.nested_type}
    for message in ours.nested_type:
        assert message == nested[message.name]
