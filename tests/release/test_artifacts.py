"""A release of the tree: its packages install, its chart names its images, its bill lists what is in them."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
import yaml

from images.build import CACHE
from images.contents import IMAGES
from images.oci import archive_index
from tests.chart.render import find_helm, helm
from tests.release.installed import installed, wheels
from tests.release.trees import Tree

pytestmark = [
    pytest.mark.programs,
    pytest.mark.root,
    pytest.mark.longest,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for mmdebstrap"),
    pytest.mark.skipif(
        find_helm() is None, reason="needs helm of the test cluster (`make cluster` builds it)"
    ),
]

REGISTRY = "registry.example/sandlot"
PACKAGES = {"", "-contract", "-controller", "-gateway", "-grade", "-kube", "-node", "-sidecar"}


# Whether each of ours requires the others in this version alone.
REQUIRES = """
import importlib.metadata, re, sys
for each in importlib.metadata.distributions():
    if each.name.startswith("sandlot"):
        ours = [text for text in each.requires or [] if text.startswith("sandlot")]
        pinned = [text for text in ours if re.search(rf"=={re.escape(sys.argv[1])}($|;)", text.replace(" ", ""))]
        print("ok" if ours == pinned else f"{each.name}:{ours}")
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def version(tree: Tree) -> str:
    chart = yaml.safe_load((tree.directory / "charts/sandlot/Chart.yaml").read_text())
    return chart["version"]


@pytest.fixture(scope="module")
def released(tree: Tree, version: str) -> Iterator[Path]:
    """Its directory, with the tree as it was; a gigabyte."""
    done = tree.release("build", version, "--registry", REGISTRY)
    assert done.returncode == 0, done.stderr
    assert tree.git("status", "--porcelain") == ""
    out = Path(done.stdout.strip())
    assert out == tree.directory / "dist" / version
    yield out
    shutil.rmtree(out)


@pytest.fixture(scope="module")
def bill(released: Path) -> dict[str, Any]:
    return json.loads((released / "sbom.cdx.json").read_text())


def test_it_is_whole_and_its_digests_hold(released: Path, version: str) -> None:
    files = {path.relative_to(released).as_posix() for path in released.rglob("*") if path.is_file()}
    python = {
        f"python/sandlot{name.replace('-', '_')}-{version}{end}"
        for name in PACKAGES
        for end in ("-py3-none-any.whl", ".tar.gz")
    }
    images = {f"images/{image.name}.tar" for image in IMAGES}
    others = {"NOTES.md", "SHA256SUMS", "sbom.cdx.json", f"chart/sandlot-{version}.tgz"}
    assert files == python | images | others
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=released, check=True)
    assert len((released / "SHA256SUMS").read_text().splitlines()) == len(files) - 1
    assert (released / "NOTES.md").read_text().startswith(f"# Sandlot {version}\n\n#")


def test_a_second_build_from_another_place_is_the_same(released: Path, version: str, tmp_path: Path) -> None:
    """Of the images, only the copies: `make release-check` builds those anew, too, which takes minutes."""
    other = Tree(tmp_path / "at" / "another" / "place")
    words = ["build", version, "--registry", REGISTRY, "--out", str(tmp_path / "out")]
    done = other.release(*words, TZ="Asia/Kathmandu", LC_ALL="C", PYTHONHASHSEED="7")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path / "out" / "images")
    assert (tmp_path / "out" / "SHA256SUMS").read_text() == (released / "SHA256SUMS").read_text()


def test_an_image_is_the_same_from_another_place_and_under_a_strict_mask(
    released: Path, tmp_path: Path
) -> None:
    """Its Debian is the cached one, which another day would differ."""
    other, cache = Tree(tmp_path / "another"), tmp_path / "cache"
    (cache / "images").mkdir(parents=True)
    for layer in CACHE.glob("debian-*.layer"):
        (cache / "images" / layer.name).symlink_to(layer)
    environment = {"SANDLOT_CLUSTER_CACHE": str(cache), "TZ": "Asia/Kathmandu", "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-m", "images", "build", "controller", "--out", tmp_path / "out"],
        cwd=other.directory,
        env={**os.environ, **environment},
        umask=0o077,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, digest = archive_index(tmp_path / "out" / "controller.tar")
    assert digest == archive_index(released / "images" / "controller.tar")[1]


def test_the_packages_install_together_and_have_the_license(
    released: Path, version: str, tmp_path: Path
) -> None:
    names = [f"sandlot{name}=={version}" for name in sorted(PACKAGES)]
    python = installed(tmp_path, "--no-deps", "--find-links", released / "python", *names)
    requires = subprocess.run([python, "-c", REQUIRES, version], capture_output=True, text=True, check=True)
    assert requires.stdout.split() == ["ok"] * len(PACKAGES)
    (site,) = (tmp_path / "installed" / "lib").glob("python3*/site-packages")
    assert len(list(site.glob("sandlot*.dist-info/licenses/LICENSE"))) == len(PACKAGES)
    said = subprocess.run(
        [python, "-c", "import sandlot; print(sandlot.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == f"{version}\n"


def test_an_adapter_works_where_only_the_package_with_its_extra_is(
    released: Path, version: str, tmp_path: Path
) -> None:
    """That of MCP, whose extra is the smallest; a client asks for its tools, with no server behind it."""
    wheels(["sandlot[mcp]"], tmp_path / "required")
    found = ("--find-links", released / "python", "--find-links", tmp_path / "required")
    python = installed(tmp_path, *found, f"sandlot[mcp]=={version}")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    nowhere = {"SANDLOT_URL": "http://127.0.0.1:1", "SANDLOT_API_KEY": "none"}
    words = [python.with_name("sandlot"), "mcp"]
    with subprocess.Popen(words, env=nowhere, cwd=tmp_path, text=True, **pipes) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write('{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}\n')
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        process.stdin.close()
    assert "create_sandbox" in {tool["name"] for tool in answer["result"]["tools"]}
    assert process.returncode == 0
    asked = "import sandlot.integrations.mcp.stdio as adapter; print(adapter.__file__)"
    said = subprocess.run([python, "-I", "-c", asked], capture_output=True, text=True, check=True)
    assert said.stdout.startswith(str(tmp_path))


def test_the_chart_without_values_names_the_images_of_the_release(released: Path, version: str) -> None:
    chart = released / "chart" / f"sandlot-{version}.tgz"
    done = helm("template", "sandlot", str(chart), "--set", "nodeAgent.enabled=true")
    assert done.returncode == 0, done.stderr
    wanted = set()
    for image in IMAGES:
        name, digest = archive_index(released / "images" / f"{image.name}.tar")
        assert name == f"{REGISTRY}/{image.name}:{version}"
        wanted.add(f"{REGISTRY}/{image.name}@{digest}")
    assert {*re.findall(rf"{REGISTRY}/[^\"'\s]+", done.stdout)} == wanted
    assert f"app.kubernetes.io/version: {version}" in done.stdout.replace('"', "")

    other = helm("template", "sandlot", str(chart), "--set", "image.tag=mine,image.registry=other.example")
    assert "@sha256" not in other.stdout
    assert "other.example/gateway:mine" in other.stdout


class Archive:
    """An image as its layers make it."""

    def __init__(self, path: Path) -> None:
        self.files: dict[str, bytes] = {}
        with tarfile.open(path) as tar:

            def read(digest: str) -> bytes:
                member = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
                assert member is not None
                return member.read()

            for layer in json.loads(read(archive_index(path)[1]))["layers"]:
                with tarfile.open(fileobj=io.BytesIO(read(layer["digest"]))) as files:
                    for member in files:
                        name = member.name
                        if member.isfile() and re.search(
                            r"/dpkg/status$|/dpkg/info/[^/]+\.list$|METADATA$", name
                        ):
                            data = files.extractfile(member)
                            assert data is not None
                            self.files[name] = data.read()

    def python(self) -> set[tuple[str, str]]:
        """Name and version of each distribution on the search path of our programs."""
        found = [
            Parser().parsestr(data.decode())
            for name, data in self.files.items()
            if re.fullmatch(r"opt/sandlot/[^/]+\.dist-info/METADATA", name)
        ]
        return {(normal(each["Name"]), each["Version"]) for each in found}

    def debian(self, directory: Path) -> set[tuple[str, str]]:
        """Name and version of each package, by Debian's own reader; each has a list of its files."""
        directory.mkdir()
        (directory / "status").write_bytes(self.files["var/lib/dpkg/status"])
        words = ["dpkg-query", f"--admindir={directory}", "-W", "-f", "${Package} ${Version}\n"]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        packages = {(name, version) for name, version in (line.split() for line in said.splitlines())}
        lists = {Path(name).stem.partition(":")[0] for name in self.files if name.endswith(".list")}
        assert {name for name, _ in packages} == lists
        return packages


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(params=[image.name for image in IMAGES])
def image(request: pytest.FixtureRequest, released: Path) -> tuple[str, Archive]:
    return request.param, Archive(released / "images" / f"{request.param}.tar")


def test_the_bill_lists_what_is_in_each_image_and_no_more(
    image: tuple[str, Archive], bill: dict[str, Any], tmp_path: Path
) -> None:
    name, archive = image
    components = {each["bom-ref"]: each for each in bill["components"]}
    (its,) = [each for each in bill["components"] if each["type"] == "container" and each["name"] == name]
    (parts,) = [each["dependsOn"] for each in bill["dependencies"] if each["ref"] == its["bom-ref"]]
    listed = {
        kind: {
            (components[part]["name"], components[part]["version"])
            for part in parts
            if part.startswith(f"pkg:{kind}/")
        }
        for kind in ("pypi", "deb")
    }
    assert listed == {"pypi": archive.python(), "deb": archive.debian(tmp_path / "dpkg")}
    assert len(parts) == len(listed["pypi"]) + len(listed["deb"])


def test_the_bill_has_the_digests_of_wheels_and_images(bill: dict[str, Any], released: Path) -> None:
    sums = {
        name: digest
        for digest, _, name in (
            line.partition("  ") for line in (released / "SHA256SUMS").read_text().splitlines()
        )
    }
    wheels = {
        each["name"]: each["hashes"][0]["content"]
        for each in bill["components"]
        if each["purl"].startswith("pkg:pypi/") and "hashes" in each
    }
    assert wheels == {
        normal(Path(name).name.partition("-")[0]): digest
        for name, digest in sums.items()
        if name.endswith(".whl")
    }
    images = {
        each["name"]: f"sha256:{each['hashes'][0]['content']}"
        for each in bill["components"]
        if each["type"] == "container"
    }
    assert images == {
        image.name: archive_index(released / "images" / f"{image.name}.tar")[1] for image in IMAGES
    }


def test_the_bill_refers_only_to_what_it_lists(bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    references = [each["bom-ref"] for each in bill["components"]]
    assert len(references) == len(set(references))
    known = {*references, bill["metadata"]["component"]["bom-ref"]}
    assert {each["ref"] for each in bill["dependencies"]} == known
    for each in bill["dependencies"]:
        assert set(each["dependsOn"]) <= known
    gateway = next(ref for ref in references if ref.startswith("pkg:pypi/sandlot-gateway@"))
    (needs,) = [each["dependsOn"] for each in bill["dependencies"] if each["ref"] == gateway]
    assert any(each.startswith("pkg:pypi/fastapi@") for each in needs)
