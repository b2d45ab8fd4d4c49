"""Layers of images: whiteouts and links as they should be, and layers that try to break out."""

from __future__ import annotations

import asyncio
import os
import stat
import tarfile
from pathlib import Path

import pytest
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
            await store.close()

    asyncio.run(run())
