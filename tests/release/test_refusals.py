"""What no release is made from: no version, a tree of another one, one with changes, a machine without the tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.release.trees import Tree, release


@pytest.mark.parametrize(
    "version", ["1.2", "v1.2.3", "01.2.3", "1.2.3+5", "1.2.3-dev", "1.2.3-rc1", "1.2.3-rc.01"]
)
def test_a_version_that_is_none_is_refused(version: str) -> None:
    done = release("build", version)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"release: VERSION={version} is no semantic version")


def test_no_version_is_refused() -> None:
    done = release("build", "")
    assert done.returncode == 1
    assert done.stderr == "release: VERSION is missing; write, for example, VERSION=1.2.3\n"


def test_a_version_that_the_changelog_lacks_is_refused() -> None:
    done = release("build", "99.0.0")
    assert done.returncode == 1
    assert "CHANGELOG.md has no section `## 99.0.0`, only " in done.stderr


def test_no_registry_to_publish_to_is_refused() -> None:
    done = release("publish", "99.0.0")
    assert (done.returncode, "REGISTRY is missing" in done.stderr) == (1, True)


def test_a_check_of_what_was_not_built_is_refused(tmp_path: Path) -> None:
    done = release("check", "99.0.0", "--out", str(tmp_path))
    assert (done.returncode, "not found; build the release first" in done.stderr) == (1, True)


SUMS = f"{'0' * 64}  sbom.cdx.json\n"


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"of/somebody": "else"}, "it holds of/somebody"),
        ({"SHA256SUMS": f"{'0' * 64}  disk.iso\n", "disk.iso": ""}, "it holds "),
        ({"SHA256SUMS": SUMS, "sbom.cdx.json": "{}", "0.1.0/sbom.cdx.json": "{}"}, "it holds 0.1.0/sbom.cdx.json"),
    ],
)  # fmt: skip
def test_a_directory_with_other_files_is_refused_and_left(
    files: dict[str, str], why: str, tmp_path: Path
) -> None:
    write(tmp_path, files)
    done = release("build", "99.0.0", "--out", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{tmp_path} is neither empty nor an earlier release: {why}" in done.stderr
    assert "which a release would delete; choose another directory" in done.stderr
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} == {
        *files
    }


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"out": "mine"})
    done = release("build", "99.0.0", "--out", str(tmp_path / "out"))
    assert (done.returncode, f"{tmp_path / 'out'} is no directory" in done.stderr) == (1, True)


@pytest.mark.parametrize("files", [{}, {"SHA256SUMS": SUMS, "sbom.cdx.json": "{}"}])
def test_an_empty_directory_and_an_earlier_release_are_replaced(
    files: dict[str, str], tmp_path: Path
) -> None:
    write(tmp_path, files)
    assert "CHANGELOG.md has no section" in release("build", "99.0.0", "--out", str(tmp_path)).stderr


def write(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def test_a_tree_becomes_the_next_version_and_then_can_be_released(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.change("CHANGELOG.md", "\n## ", "\n## 99.0.0-rc.1 (2026-05-04)\n\nAll of it.\n\n## ")
    done = tree.release("build", "99.0.0-rc.1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the tree has another version than 99.0.0-rc.1: pyproject.toml (" in done.stderr
    assert "`make version VERSION=99.0.0-rc.1`" in done.stderr

    changed = tree.release("version", "99.0.0-rc.1")
    assert changed.returncode == 0, changed.stderr
    assert {"sdk/pyproject.toml", "sdk/src/sandlot/_version.py", "charts/sandlot/Chart.yaml"} <= {
        *changed.stdout.split()
    }
    page = (tree.directory / "docs/install.md").read_text()
    for command in (
        "/sandlot/$name:99.0.0-rc.1 .\n",
        "docker push registry.example/sandlot/$name:99.0.0-rc.1\n",
        "--find-links dist/99.0.0-rc.1/python 'sandlot[cli]==99.0.0-rc.1'\n",
    ):
        assert command in page
    assert len(changed.stdout.split()) == len(tree.git("status", "--porcelain").splitlines()) - 1
    done = tree.release("build", "99.0.0-rc.1")
    assert done.returncode == 1
    assert "the tree differs from its commit: " in done.stderr
    assert "DIRTY=1" in done.stderr

    tree.commit()
    done = tree.release("build", "99.0.0-rc.1", HELM="/no/helm")
    assert (done.returncode, done.stderr) == (
        1,
        "release: /no/helm: not found; install Helm 4, or set HELM to its path\n",
    )
    assert not (tree.directory / "dist").exists()


def test_helm_3_is_refused(tmp_path: Path) -> None:
    helm = tmp_path / "helm"
    helm.write_text("#!/bin/sh\necho v3.19.0\n")
    helm.chmod(0o755)
    tree = Tree(tmp_path / "tree")
    version = (tree.directory / "charts/sandlot/Chart.yaml").read_text().split("\nversion: ")[1].split()[0]
    done = tree.release("build", version, HELM=str(helm))
    assert (done.returncode, "is Helm v3.19.0, whose archives contain the time" in done.stderr) == (1, True)
