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
