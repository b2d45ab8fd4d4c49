"""Layers of images: whiteouts and links as they should be, and layers that try to break out."""

from __future__ import annotations

import asyncio
import os
import stat
import tarfile
from pathlib import Path

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot_gateway.backends.local.images import (
    ImageError,
    ImageStore,
)

from tests.local.conftest import root_of
from tests.local.oci import Layout, entry, hardlink, layer, one_image, symlink


async def test_whiteouts_hide_what_earlier_layers_had_and_only_that(
    store: ImageStore, tmp_path: Path
) -> None:
    lower = layer(
        entry("gone/deep/file", b"1"),
        entry("kept", b"1"),
        entry("swap/file", b"1"),
        entry("opaque/old", b"1"),
        entry("opaque/both", b"1"),
        entry("file-to-dir", b"1"),
        entry("link-target/x", b"1"),
        symlink("dir-to-link", "link-target"),
    )
    upper = layer(
        entry(".wh.gone", b""),
        # The layer's own entry comes before the whiteout of its name: it stays.
        entry("swap", b"now a file"),
        entry(".wh.swap", b""),
        entry("opaque/both", b"2"),
        entry("opaque/.wh..wh..opq", b""),
        entry("opaque/new", b"2"),
        entry("file-to-dir"),
        entry("file-to-dir/x", b"2"),
        entry("dir-to-link"),
        entry("dir-to-link/own", b"2"),
        entry(".wh..wh.plnk", b""),
        entry(".wh...", b""),
        entry("sub/.wh..", b""),
    )
    root = await root_of(store, one_image([lower, upper]).archive(tmp_path / "i.tar"))
    assert not (root / "gone").exists()
    assert (root / "kept").read_bytes() == b"1"
    assert (root / "swap").read_bytes() == b"now a file"
    assert sorted(os.listdir(root / "opaque")) == ["both", "new"]
    assert (root / "opaque/both").read_bytes() == b"2"
    assert os.listdir(root / "file-to-dir") == ["x"]
    assert not (root / "dir-to-link").is_symlink()
    assert os.listdir(root / "link-target") == ["x"]
    assert not [name for name in os.listdir(root) if name.startswith(".wh.")]


async def test_no_entry_reaches_outside(store: ImageStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("precious")
    hostile = layer(
        entry("../../../../escape-1", b"x"),
        entry("/abs/escape-2", b"x"),
        entry("a/../../../escape-3", b"x"),
        symlink("to-outside", str(outside)),
        entry("to-outside/planted", b"x"),
        symlink("to-victim", str(outside / "victim")),
        entry("to-victim", b"overwritten"),
        symlink("up", "../../../../../../../../.." + str(outside)),
        entry("up/planted", b"x"),
        entry("up/.wh.victim", b""),
        symlink("chain-1", "chain-2"),
        symlink("chain-2", str(outside)),
        entry("chain-1/.wh..wh..opq", b""),
        entry("dev/sda", type=tarfile.BLKTYPE, devmajor=8, devminor=0),
        entry("dev/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
        entry("pipe", type=tarfile.FIFOTYPE),
        entry("xattr", b"x", pax_headers={"SCHILY.xattr.trusted.overlay.redirect": "/etc"}),
    )
    later = layer(entry("to-outside/victim", b"second layer"))
    root = await root_of(store, one_image([hostile, later]).archive(tmp_path / "i.tar"))
    assert os.listdir(outside) == ["victim"]
    assert (outside / "victim").read_text() == "precious"
    assert not [name for name in (*os.listdir(tmp_path), *os.listdir("/")) if name.startswith("escape-")]
    assert (root / "escape-1").read_bytes() == b"x"
    assert (root / "abs/escape-2").read_bytes() == b"x"
    assert (root / "to-victim").read_bytes() == b"overwritten"
    inside = root / str(outside).lstrip("/")
    assert (inside / "victim").read_bytes() == b"second layer"
    assert os.listdir(root / "dev") == []
    assert stat.S_ISFIFO((root / "pipe").stat().st_mode)
    assert os.listxattr(root / "xattr") == []


async def test_a_hard_link_stays_inside_and_a_later_file_does_not_write_through_it(
    store: ImageStore, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("precious")
    layers = [
        layer(entry("one", b"1"), hardlink("two", "one"), entry("x", b"")),
        layer(entry("two", b"2")),
    ]
    root = await root_of(store, one_image(layers).archive(tmp_path / "i.tar"))
    assert (root / "one").read_bytes() == b"1"
    assert (root / "two").read_bytes() == b"2"
    stolen = one_image([layer(hardlink("stolen", str(secret)))]).archive(tmp_path / "bad.tar")
    with pytest.raises(ImageError, match="hard link to the missing"):
        await store.prepare(str(stolen))
    through = one_image([layer(symlink("l", str(secret)), hardlink("stolen", "l"))]).archive(
        tmp_path / "l.tar"
    )
    root = await root_of(store, through)
    assert (root / "stolen").is_symlink()


async def test_a_damaged_gzip_is_an_image_error(store: ImageStore, tmp_path: Path) -> None:
    layout = Layout()
    layout.image([b"\x1f\x8b" + os.urandom(300)], compress=False)
    with pytest.raises(ImageError, match="damaged"):
        await store.prepare(str(layout.archive(tmp_path / "i.tar")))


async def test_zstd_and_empty_layers(store: ImageStore, tmp_path: Path) -> None:
    parts = [zstd.compress(layer(entry("one", b"1" * 100_000))), layer(entry("two", b"2")), b"", layer()]
    layout = Layout()
    layout.image(parts, compress=False)
    root = await root_of(store, layout.archive(tmp_path / "i.tar"))
    assert (root / "one").read_bytes() == b"1" * 100_000
    assert sorted(os.listdir(root)) == ["one", "two"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: an ordinary user keeps no attributes")
async def test_attributes_of_files_are_kept_but_not_the_overlay_s(store: ImageStore, tmp_path: Path) -> None:
    def noted(name: str, data: bytes | None, **more: str) -> tuple[tarfile.TarInfo, bytes]:
        return entry(name, data, pax_headers={f"SCHILY.xattr.{key}": value for key, value in more.items()})

    capability = "\x01\x00\x00\x02" + "\x00\x04" + "\x00" * 14
    files = layer(
        noted(
            "file", b"x", **{"user.note": "größe", "user.overlay.opaque": "y", "trusted.overlay.opaque": "y"}
        ),
        noted("directory", None, **{"user.note": "of a directory", "user.overlay.redirect": "/etc"}),
        noted("capable", b"x", **{"security.capability": capability}),
    )
    root = await root_of(store, one_image([files]).archive(tmp_path / "i.tar"))
    assert os.listxattr(root / "file") == os.listxattr(root / "directory") == ["user.note"]
    assert os.getxattr(root / "file", "user.note") == "größe".encode()
    assert os.getxattr(root / "capable", "security.capability") == capability.encode()


async def test_times_are_kept_to_the_nanosecond_also_of_links(store: ImageStore, tmp_path: Path) -> None:
    def at(name: str, mtime: str, **more: object) -> tuple[tarfile.TarInfo, bytes]:
        return entry(name, None if more else b"", pax_headers={"mtime": mtime}, **more)

    files = layer(
        at("precise", "1234567890.123456789"),
        at("directory", "1234567890.5", type=tarfile.DIRTYPE),
        at("link", "1234567890.000000001", type=tarfile.SYMTYPE, linkname="precise"),
        *(at(name, name) for name in ("-5", "-5.25", "1e30", "nan", "inf")),
    )
    root = await root_of(store, one_image([files]).archive(tmp_path / "i.tar"))
    found = {path.name: path.lstat().st_mtime_ns for path in root.iterdir()}
    assert found == {
        "precise": 1234567890_123456789,
        "directory": 1234567890_500000000,
        "link": 1234567890_000000001,
        **dict.fromkeys(("-5", "-5.25", "1e30", "nan", "inf"), 0),
    }


async def test_the_working_directory_is_made_unless_something_is_there(
    store: ImageStore, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    made = {
        "/srv/not made/yet": "srv/not made/yet",
        "relative/path": "relative/path",
        "/../../up": "up",
        "/to-outside/below": f"{outside}/below".lstrip("/"),
    }
    files = layer(symlink("to-outside", str(outside)), entry("file", b"kept"))
    for number, (workdir, expected) in enumerate(made.items()):
        archive = one_image([files], config={"WorkingDir": workdir}).archive(tmp_path / f"{number}.tar")
        assert (await root_of(store, archive) / expected).is_dir()
    archive = one_image([files], config={"WorkingDir": "/file/below"}).archive(tmp_path / "file.tar")
    assert (await root_of(store, archive) / "file").read_bytes() == b"kept"
    assert not outside.exists()


async def test_directories_that_no_layer_names_are_open_whatever_the_gateway_s_umask(
    store: ImageStore, tmp_path: Path
) -> None:
    archive = one_image([layer(entry("a/b/file", b""))]).archive(tmp_path / "i.tar")
    before = os.umask(0o077)
    try:
        root = await root_of(store, archive)
    finally:
        os.umask(before)
    assert [stat.S_IMODE((root / path).stat().st_mode) for path in (".", "a", "a/b")] == [0o755] * 3


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=3000), st.booleans())
def test_any_bytes_as_a_layer_end_in_an_image_or_an_image_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, valid_start: bool
) -> None:
    async def run() -> None:
        directory = tmp_path_factory.mktemp("any")
        (directory / "cache").mkdir()
        store = ImageStore(directory / "cache")
        payload = (layer(entry("a/b", b"x"))[:1024] if valid_start else b"") + data
        path = one_image([payload]).archive(directory / "i.tar")
        try:
            await store.prepare(str(path))
        except ImageError:
            pass
        finally:
            await store.close(timeout=60)

    asyncio.run(run())
