"""Where the driver of a machine is found whose root is a directory: links, other directories with libcuda."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.backends.local.gpu_driver import find_driver
from sandlot_gateway.backends.local.gpus import Gpus
from sandlot_gateway.core.backend import BackendError

from tests.local.conftest import NEEDS_ROOT
from tests.local.gpu_machine import ELF, H100, add_driver, gpu_machine

ONE = Template("host", gpu_count=1)


def files(root: Path) -> dict[str, str]:
    driver = find_driver(root)
    assert driver is not None
    return driver.files


def test_links_lead_below_the_machine_s_root(tmp_path: Path) -> None:
    libraries = add_driver(tmp_path)
    own = tmp_path / "opt/current"
    own.mkdir(parents=True)
    (libraries / "libcuda.so.580.1").rename(own / "libcuda.so.580.1")
    (own / "libcuda.so.1").symlink_to("../../opt/./current/libcuda.so.580.1")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/driver").symlink_to("/opt/current")
    (libraries / "libcuda.so.1").unlink()
    (libraries / "libcuda.so.1").symlink_to("/etc/driver/libcuda.so.1")
    (libraries / "libnvidia-cfg.so.1").symlink_to("libnvidia-cfg.so.1")
    assert files(tmp_path) == {
        "lib/libcuda.so.580.1": str(own / "libcuda.so.580.1"),
        "lib/libnvidia-ml.so.580.1": str(libraries / "libnvidia-ml.so.580.1"),
        "bin/nvidia-smi": str(tmp_path / "usr/bin/nvidia-smi"),
    }


def test_a_link_above_the_machine_s_root_stays_at_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    libraries = add_driver(root)
    (libraries / "libcuda.so.1").unlink()
    up = "../" * 20
    (libraries / "libcuda.so.1").symlink_to(f"{up}{libraries.relative_to(root)}/libcuda.so.580.1")
    assert "lib/libcuda.so.580.1" in files(root)


def test_cuda_s_compatibility_library_is_not_the_driver(tmp_path: Path) -> None:
    libraries = add_driver(tmp_path)
    compat = tmp_path / "usr/local/cuda/compat"
    compat.mkdir(parents=True)
    (compat / "libcuda.so.1").write_bytes(ELF)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.conf").write_text("/usr/local/cuda/compat\n")
    assert files(tmp_path)["lib/libcuda.so.580.1"] == str(libraries / "libcuda.so.580.1")
    (libraries / "libnvidia-ml.so.1").unlink()
    assert find_driver(tmp_path) is None


@pytest.mark.root
@NEEDS_ROOT[1]
def test_the_driver_is_looked_for_at_most_once_a_second(tmp_path: Path) -> None:
    """It lists all libraries: sixty creates that wait for a GPU took half of a core."""
    now = 5.0
    gpus = Gpus({}, left={}, root=gpu_machine(tmp_path, H100), clock=lambda: now)
    found = gpus.find(ONE)
    for library in tmp_path.glob("usr/lib/*/libcuda*"):
        library.unlink()
    now = 5.9
    assert gpus.find(ONE) == found
    now = 6.0
    with pytest.raises(BackendError, match=r"libcuda\.so\.1"):
        gpus.find(ONE)
    add_driver(tmp_path, directory="usr/local/nvidia/lib")
    assert gpus.find(ONE).driver.files != found.driver.files


@pytest.mark.root
@NEEDS_ROOT[1]
def test_a_relative_root_gives_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_machine(tmp_path / "gpus", H100)
    monkeypatch.chdir(tmp_path)
    gpus = Gpus({}, left={}, root=Path("gpus"))
    document = gpus.document([0], gpus.find(ONE))
    assert document["devices"]["nvidia0"] == str(tmp_path / "gpus/dev/nvidia0")
    assert all(path.startswith(f"{tmp_path}/") for path in document["files"].values())
