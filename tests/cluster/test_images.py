"""The images' one list of contents: Dockerfiles, pinned lists and archives follow it."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from images import bundle, dockerfiles, holder, requirements
from images.__main__ import generate
from images.build import config
from images.contents import BUNDLE, IMAGES, Image, by_name
from images.requirements import ROOT


def test_generated_files_are_up_to_date() -> None:
    assert generate(check=True) == 0


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_dockerfile_and_archive_start_alike(image: Image) -> None:
    lines = dockerfiles.render(image).splitlines()
    settings = config(image)
    entrypoint = [
        json.loads(line.removeprefix("ENTRYPOINT ")) for line in lines if line.startswith("ENTRYPOINT ")
    ]
    assert entrypoint == ([list(image.entrypoint)] if image.entrypoint else [])
    assert settings.get("Entrypoint", []) == list(image.entrypoint)
    assert f"USER {settings['User']}" in lines
    assert settings["Env"] == [
        line.removeprefix("ENV ") for line in lines if line.startswith("ENV ") and "EPOCH" not in line
    ]


def test_gateway_and_controller_are_not_root() -> None:
    for name in ("gateway", "controller"):
        assert by_name(name).user == "65532:65532"


def test_every_pinned_entry_has_a_hash() -> None:
    for path, text in requirements.generated().items():
        for name, entries in requirements.blocks(text).items():
            assert all("--hash=sha256:" in entry for entry in entries), f"{path}: {name}"


def test_the_sidecar_has_its_one_dependency_and_no_other() -> None:
    assert set(requirements.blocks(requirements.of_image(by_name("sidecar")))) == {"httptools"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root file system with a package of ours and some of the library, in bytecode."""
    for name in ("opt/sandlot/ours/deep/part", "usr/lib/python3.11/theirs", "usr/lib/python3.11/ours"):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"PLACE = {name!r}\n")
    for package in ("opt/sandlot/ours", "opt/sandlot/ours/deep", "opt/sandlot/ours/tests"):
        (tmp_path / package).mkdir(exist_ok=True)
        (tmp_path / package / "__init__.py").write_text("")
    options = ["-q", "-o", "2", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([sys.executable, "-m", "compileall", *options, tmp_path], check=True)
    for path in tmp_path.rglob("*.pyc"):
        path.rename(path.with_name(path.name.split(".")[0] + bundle.MARK))
    return tmp_path


def test_a_bundle_has_whole_packages_and_the_first_of_two_places(root: Path, tmp_path: Path) -> None:
    bundle.write(root, tmp_path / "one.zip", ["theirs", "ours"])
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert archive.namelist() == [
            "ours/__init__.pyc",
            "ours/deep/__init__.pyc",
            "ours/deep/part.pyc",
            "theirs.pyc",
        ]
    said = "import ours.deep.part, theirs; print(ours.deep.part.PLACE, theirs.PLACE)"
    command = [sys.executable, "-S", "-P", "-c", said]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path / "one.zip")}, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["opt/sandlot/ours/deep/part", "usr/lib/python3.11/theirs"], done.stderr


def test_a_bundle_of_the_same_modules_is_the_same_bytes_by_import_and_by_command(
    root: Path, tmp_path: Path
) -> None:
    bundle.write(root, tmp_path / "one.zip", ["ours", "theirs"])
    words = [sys.executable, ROOT / "images" / "bundle.py", root, tmp_path / "two.zip", "theirs", "ours"]
    subprocess.run(words, check=True)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_a_bundle_without_one_of_its_modules_is_none(root: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nonsense: no bytecode of it in opt/sandlot or"):
        bundle.write(root, tmp_path / "one.zip", ["ours", "nonsense"])


def test_the_sidecars_modules_are_looked_for_in_its_bundle_first() -> None:
    image = by_name("sidecar")
    assert image.environment["PYTHONPATH"].partition(":")[0] == BUNDLE
    assert f"COPY --from=build {BUNDLE} {BUNDLE}" in dockerfiles.render(image).splitlines()


def test_an_unknown_image_is_named_in_the_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        by_name("nonsense")


def test_the_holder_stops_itself_whoever_lets_it_go_on(tmp_path: Path) -> None:
    program = tmp_path / "made" / "holder"
    subprocess.run([sys.executable, ROOT / "images" / "holder.py", program], check=True)
    assert program.read_bytes() == holder.program(platform.machine())
    pid = os.posix_spawn(program, ["holder"], {})
    try:
        for _ in range(3):
            _, status = os.waitpid(pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), status
            os.kill(pid, signal.SIGCONT)
    finally:
        os.kill(pid, signal.SIGKILL)
        while not os.WIFSIGNALED(os.waitpid(pid, os.WUNTRACED)[1]):
            pass


def test_each_machine_has_a_holder_and_another_is_told() -> None:
    for machine, number in (("x86_64", 62), ("aarch64", 183)):
        made = holder.program(machine)
        assert made[:5] == b"\x7fELF\x02"
        assert int.from_bytes(made[18:20], "little") == number
    with pytest.raises(ValueError, match="riscv64"):
        holder.program("riscv64")
