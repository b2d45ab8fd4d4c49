"""Images: names, OCI archives and layouts, pulls, and errors that name the image."""

from __future__ import annotations

import asyncio
import gc
import os
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_gateway.backends.local.images import (
    Host,
    ImageError,
    ImageStore,
    OciPath,
    Registry,
    parse,
)

from tests.local.conftest import root_of
from tests.local.oci import ARCHITECTURE, Layout, entry, layer, one_image, symlink
from tests.waiting import until


def inode(path: Path) -> int:
    return path.stat().st_ino


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("host", Host()),
        ("/a/b.tar", OciPath(Path("/a/b.tar"))),
        ("oci:/a/b:v1", OciPath(Path("/a/b"), "v1")),
        ("oci-archive:/a/b.tar", OciPath(Path("/a/b.tar"))),
        ("python:3.11-slim", Registry("python:3.11-slim")),
        ("localhost:5000/team/x@sha256:" + "0" * 64, Registry("localhost:5000/team/x@sha256:" + "0" * 64)),
        ("docker://ghcr.io/a/b", Registry("ghcr.io/a/b")),
    ],
)
def test_names(name: str, expected: object) -> None:
    assert parse(name) == expected


@pytest.mark.parametrize(
    "name", ["", "UPPER", "a b", "--help", "x\n", "oci:", "a" * 5000, "a//b", "é", "docker://"]
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ImageError) as caught:
        parse(name)
    assert caught.value.field == "docker_image"
    assert caught.value.error_type == "IMAGE_INVALID"


@given(st.text(max_size=40))
def test_every_text_is_a_reference_or_a_clear_error(text: str) -> None:
    try:
        found = parse(text)
    except ImageError as error:
        assert str(error)
        return
    # What skopeo is given can never be taken for an option.
    assert not isinstance(found, Registry) or not found.name.startswith("-")


@pytest.mark.parametrize("as_archive", [True, False])
@pytest.mark.parametrize("compress", [True, False])
async def test_an_image_is_unpacked_once_with_its_settings(
    store: ImageStore, tmp_path: Path, as_archive: bool, compress: bool
) -> None:
    layout = one_image(
        [layer(entry("bin"), entry("bin/tool", b"#!", mode=0o4755), symlink("sbin", "bin"))],
        config={
            "Env": ["A=1=2", "broken"],
            "WorkingDir": "/app",
            "User": "1000:1000",
            "Entrypoint": ["/x"],
            "Cmd": ["y"],
            "StopSignal": "SIGQUIT",
        },
        compress=compress,
    )
    path = layout.archive(tmp_path / "i.tar") if as_archive else layout.directory(tmp_path / "i")
    images = await asyncio.gather(*(store.prepare(str(path)) for _ in range(5)))
    assert all(image == images[0] for image in images)
    image = images[0]
    assert (image.env["A"], image.workdir, image.user) == ("1=2", "/app", "1000:1000")
    assert (image.command, image.stop_signal) == (("/x", "y"), "SIGQUIT")
    assert image.id == layout.manifests[0]["digest"]
    assert Path(image.lower[0]).parent.name == image.id.replace(":", "-")
    assert "PATH" in image.env
    assert "broken" not in image.env
    root = Path(image.lower[0])
    status = (root / "sbin/tool").stat()
    assert stat.S_IMODE(status.st_mode) == 0o4755
    assert status.st_mtime == 1_700_000_000
    assert (root / "bin").stat().st_mtime == 1_700_000_000
    before = inode(root)
    again = ImageStore(root.parent.parent)
    again.open()
    assert inode(await root_of(again, path)) == before
    await again.close(timeout=60)


async def test_a_changed_file_is_another_image(store: ImageStore, tmp_path: Path) -> None:
    path = tmp_path / "i.tar"
    first = await root_of(store, one_image([layer(entry("a", b"1"))]).archive(path))
    second = await root_of(store, one_image([layer(entry("a", b"22"))]).archive(path))
    assert (first / "a").read_bytes() == b"1"
    assert (second / "a").read_bytes() == b"22"


async def test_this_machine_s_architecture_is_picked_also_below_an_inner_index(
    store: ImageStore, tmp_path: Path
) -> None:
    layout = Layout()
    other = layout.image([layer(entry("other", b""))], architecture="s390x", listed=False)
    mine = layout.image([layer(entry("mine", b""))], listed=False)
    layout.nested([other, mine])
    root = await root_of(store, layout.archive(tmp_path / "i.tar"))
    assert os.listdir(root) == ["mine"]
    layout = Layout()
    layout.nested([layout.image([layer()], architecture=name, listed=False) for name in ("s390x", "ppc64le")])
    foreign = layout.archive(tmp_path / "f.tar")
    with pytest.raises(
        ImageError, match=f"no image for linux/{ARCHITECTURE}, only for linux/ppc64le, linux/s390x; build it"
    ):
        await store.prepare(str(foreign))


async def test_a_single_image_that_no_index_describes_is_for_the_platform_of_its_config(
    store: ImageStore, tmp_path: Path
) -> None:
    layout = one_image([layer()], architecture="s390x")
    del layout.manifests[0]["platform"]
    with pytest.raises(ImageError, match="only for linux/s390x"):
        await store.prepare(str(layout.archive(tmp_path / "i.tar")))


async def test_a_tag_picks_one_of_several(store: ImageStore, tmp_path: Path) -> None:
    layout = Layout()
    layout.image([layer(entry("one", b""))], tag="v1")
    layout.image([layer(entry("two", b""))], tag="docker.io/library/x:v2")
    path = layout.archive(tmp_path / "i.tar")
    image = await store.prepare(f"oci-archive:{path}:v2")
    assert os.listdir(image.lower[0]) == ["two"]
    with pytest.raises(ImageError, match="no image with the tag 'v3'"):
        await store.prepare(f"oci-archive:{path}:v3")
    with pytest.raises(ImageError, match="2 images in it"):
        await store.prepare(str(path))


async def test_errors_name_the_image_and_leave_nothing(store: ImageStore, tmp_path: Path) -> None:
    good = one_image([layer(entry("a", b"1" * 5000))])
    blob = good.manifests[0]["digest"].removeprefix("sha256:")
    cases: dict[str, str] = {}
    (tmp_path / "text.tar").write_bytes(b"not a tar at all")
    cases["text.tar"] = "not an OCI archive"
    cases["missing.tar"] = "no such file"
    os.mkfifo(tmp_path / "pipe.tar")
    cases["pipe.tar"] = "no regular file"
    (tmp_path / "piped-dir").mkdir()
    os.mkfifo(tmp_path / "piped-dir/index.json")
    cases["piped-dir"] = "no regular file"
    (tmp_path / "empty-dir").mkdir()
    cases["empty-dir"] = "no index.json"
    with tarfile.open(tmp_path / "docker.tar", "w") as archive:
        archive.addfile(*_member("manifest.json", b"[]"))
    cases["docker.tar"] = "docker archive"
    lost = Layout({k: v for k, v in good.files.items() if blob not in k}, good.manifests)
    lost.archive(tmp_path / "lost.tar")
    cases["lost.tar"] = "is missing"
    forged = Layout(dict(good.files), good.manifests)
    forged.files[f"blobs/sha256/{blob}"] += b" "
    forged.archive(tmp_path / "forged.tar")
    cases["forged.tar"] = "other contents than its digest says"
    swapped = one_image([layer(entry("a", b"1"))], compress=False)
    name = max(swapped.files, key=lambda key: len(swapped.files[key]))
    swapped.files[name] = layer(entry("a", b"2"))
    swapped.archive(tmp_path / "swapped.tar")
    cases["swapped.tar"] = "other contents than its digest says"
    zstd = Layout()
    zstd.image([b"\x28\xb5\x2f\xfd" + b"0" * 100], compress=False)
    zstd.archive(tmp_path / "zstd.tar")
    cases["zstd.tar"] = "is damaged"
    traversal = Layout(manifests=[{"mediaType": "x", "digest": "sha256:../../../../etc/passwd"}])
    traversal.archive(tmp_path / "traversal.tar")
    cases["traversal.tar"] = "is not a sha256 digest"
    bad: dict[str, dict[str, Any]] = {
        "WorkingDir": {"WorkingDir": "/a\0b"},
        "User": {"User": "\ud800"},
        "Env": {"Env": ["A=b\0c"]},
    }
    for field, config in bad.items():
        one_image([layer(entry("a", b"1"))], config=config).archive(tmp_path / f"{field}.tar")
        cases[f"{field}.tar"] = f"{field} in the image's configuration has a NUL byte or is no valid text"
    for file, message in cases.items():
        with pytest.raises(ImageError, match=message) as caught:
            await store.prepare(str(tmp_path / file))
        assert file in str(caught.value)
        assert caught.value.error_type == "IMAGE_PULL_FAILED"


async def test_without_skopeo_a_reference_is_a_clear_error(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="skopeo is not installed") as caught:
        await store.prepare("python:3.11-slim")
    assert caught.value.error_type == "IMAGE_PULL_FAILED"
    assert caught.value.field == "docker_image"


async def test_a_failure_whose_callers_have_left_is_no_error_of_the_gateway(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    skopeo = tmp_path / "skopeo"
    skopeo.write_text(f"#!/bin/sh\nread _ < {gate}; exit 1\n")
    skopeo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    caller = asyncio.create_task(store.prepare("python:3.11-slim"))
    await until(lambda: store.progress("python:3.11-slim"))
    caller.cancel()
    await asyncio.wait([caller])
    del caller  # its traceback has the failed task
    await asyncio.to_thread(gate.write_text, "go on\n")
    await until(lambda: store.progress("python:3.11-slim") is None)
    gc.collect()
    assert complaints == []


async def test_a_pulled_image_is_kept_and_a_failed_pull_tells_skopeo_s_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in program plays skopeo, for this machine reaches no registry: it copies a layout, or fails."""
    source = one_image([layer(entry("pulled", b""))], tag="image").directory(tmp_path / "source")
    skopeo = tmp_path / "bin" / "skopeo"
    skopeo.parent.mkdir()
    skopeo.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >> {tmp_path}/calls\n'
        'case "$5" in *bad*) echo "manifest unknown" >&2; exit 1;; esac\n'
        "target=${6#oci:}; target=${target%:image}\n"
        f'cp -r {source}/. "$target"\n'
    )
    skopeo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{skopeo.parent}:{os.environ['PATH']}")
    directory = tmp_path / "cache"
    directory.mkdir()
    for _ in range(2):
        store = ImageStore(directory)
        image = await store.prepare("team/good:1")
        assert os.listdir(image.lower[0]) == ["pulled"]
        await store.close(timeout=60)
    assert (tmp_path / "calls").read_text().count("docker://team/good:1") == 1
    store = ImageStore(directory)
    with pytest.raises(ImageError, match="cannot pull team/bad: manifest unknown"):
        await store.prepare("team/bad")
    await store.close(timeout=60)
    assert not list(directory.glob(".new-*"))


async def test_half_unpacked_images_of_a_killed_gateway_are_removed_unless_another_one_works(
    tmp_path: Path,
) -> None:
    left = tmp_path / ".new-dead" / "rootfs"
    left.mkdir(parents=True)
    first = ImageStore(tmp_path)
    first.open()
    assert not left.exists()
    left.mkdir(parents=True)
    second = ImageStore(tmp_path)
    second.open()
    assert left.exists()
    await first.close(timeout=60)
    await second.close(timeout=60)


def _member(name: str, data: bytes) -> tuple[tarfile.TarInfo, object]:
    import io

    info = tarfile.TarInfo(name)
    info.size = len(data)
    return info, io.BytesIO(data)
