"""Images with files that are easily unpacked wrongly: modes, attributes, links, whiteouts, names, many of them."""

from __future__ import annotations

import random
import struct
import tarfile

from tests.conformance.archive import Recipe
from tests.conformance.bases import busybox
from tests.conformance.materials import Materials
from tests.local.oci import entry, hardlink, layer, symlink

# cap_net_bind_service in the permitted and effective set, as setcap writes it.
_CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0).decode("latin-1")
_DEEP = "/".join(f"deep-{number:03}-{'d' * 40}" for number in range(60))
_LONG = "n" * 255
_HIGH = 4_294_967_293


def _modes(materials: Materials) -> list[bytes]:
    return [
        busybox(materials),
        layer(
            entry(".", mode=0o555),
            entry("read-only", b"r", mode=0o444),
            entry("none", b"0", mode=0o000, uid=1000),
            entry("all", b"7", mode=0o7777),
            entry("usr/bin"),
            entry("usr/bin/suid", materials.probe(), mode=0o4755),
            entry("usr/bin/sgid", materials.probe(), mode=0o2755, gid=50),
            entry("usr/bin/of-app", materials.probe(), mode=0o6711, uid=1000, gid=1000),
            entry("shared", mode=0o2775, gid=50),
            entry("sticky", mode=0o1777),
            entry("closed", mode=0o000),
            entry("closed/inside", b"seen by root alone", mode=0o400),
            entry("var/tmp", mode=0o1770, gid=50),
            entry("tmp", mode=0o1750, uid=1000),
        ),
    ]


def _attributes(materials: Materials) -> list[bytes]:
    def with_attributes(name: str, data: bytes | None, **values: str) -> tuple[tarfile.TarInfo, bytes]:
        headers = {f"SCHILY.xattr.{key.replace('__', '.')}": value for key, value in values.items()}
        return entry(name, data, pax_headers=headers)

    return [
        busybox(materials),
        layer(
            with_attributes("capable", materials.probe(), security__capability=_CAPABILITY),
            with_attributes("noted", b"n", user__note="größe", user__binary="\x00\x01\x7f"),
            with_attributes("directory", None, user__note="of a directory"),
            with_attributes("replaced", b"1", user__note="of the first layer"),
            with_attributes("kept", b"1", user__note="of the first layer"),
        ),
        layer(entry("replaced", b"2")),
    ]


def _hard_links(materials: Materials) -> list[bytes]:
    return [
        busybox(materials),
        layer(
            entry("one", b"the same", mode=0o640, uid=1000, gid=50),
            hardlink("two", "one"),
            hardlink("usr/three", "two"),
            symlink("soft", "one"),
            hardlink("soft-too", "soft"),
            entry("pair-1", b"pair"),
            hardlink("pair-2", "pair-1"),
        ),
        layer(entry("pair-1", b"no longer a pair")),
        layer(entry(".wh.two", b"")),
    ]


def _links_across_layers(materials: Materials) -> list[bytes]:
    return [
        busybox(materials),
        layer(
            entry(
                "one",
                b"the same",
                mode=0o640,
                uid=1000,
                gid=50,
                pax_headers={"SCHILY.xattr.user.note": "of one"},
            ),
            hardlink("usr/two", "one"),
        ),
        layer(hardlink("three", "usr/two")),
        layer(hardlink("four", "/one"), entry("usr/.wh.two", b"")),
    ]


def _whiteouts(materials: Materials) -> list[bytes]:
    return [
        busybox(materials),
        layer(
            *(entry(f"tree/{branch}/{leaf}", b"1") for branch in "abc" for leaf in ("x", "y", "z")),
            entry("opaque/old/deep", b"1"),
            entry("opaque/both", b"1", mode=0o600),
            entry("again", b"1"),
            entry("gone/whole/directory", b"1"),
        ),
        layer(
            entry("tree/a/.wh.x", b""),
            entry("tree/.wh.b", b""),
            entry("opaque"),
            entry("opaque/.wh..wh..opq", b""),
            entry("opaque/both", b"2"),
            entry(".wh.again", b""),
            entry(".wh.never-there", b""),
        ),
        layer(
            entry("again/as", b"a directory"),
            entry("tree/b/new", b"3"),
            entry("tree/c/.wh..wh..opq", b""),
            entry(".wh.gone", b""),
        ),
        layer(entry("gone", b"now a file"), entry("opaque/.wh.both", b""), entry("tree/a/x", b"back")),
        layer(entry("tree/a/.wh.y", b""), entry("tree/a/y", b"5"), entry("opaque/.wh..wh..opq", b"")),
    ]


def _kinds(materials: Materials) -> list[bytes]:
    """Each kind of file in the place of each other, with and without the entry of the directory itself."""
    kinds = {"file": lambda name: [entry(name, b"a file")],
             "directory": lambda name: [entry(name), entry(f"{name}/inside", b"1")],
             "symlink": lambda name: [symlink(name, "/target")],
             "fifo": lambda name: [entry(name, type=tarfile.FIFOTYPE)]}  # fmt: skip
    pairs = [(old, new) for old in kinds for new in kinds]
    return [
        busybox(materials),
        layer(entry("target/inside", b"of the target"), *(e for old, new in pairs for e in kinds[old](f"{old}-to-{new}"))),
        layer(*(e for old, new in pairs for e in kinds[new](f"{old}-to-{new}"))),
    ]  # fmt: skip


def _names(materials: Materials) -> list[bytes]:
    names = [
        "größe", "大小", "🙂", "e\u0301 not composed", "\u00e9 composed", "  spaces  ", "new\nline", "tab\tand\\backslash",
        "-dash", "quote'\"`$(x)", "colon:comma,equals=", "wh.not-a-whiteout", ".whx", "...", "*?[a-z]", "\x01\x7f", _LONG,
        "\udcff\udcfe not utf-8", "latin-\udce9", "A", "a", "i\u0307",
    ]  # fmt: skip
    return [
        busybox(materials),
        layer(
            *(entry(f"names/{name}", name.encode("utf-8", "surrogateescape")) for name in names),
            *(entry(f"directories/{name}/file", b"f") for name in names),
            symlink("link-to-bytes", "names/\udcff\udcfe not utf-8"),
            symlink("long-link", "/" + "t/" * 2000 + "end"),
            hardlink("hard-to-bytes", "names/\udcff\udcfe not utf-8"),
            entry(f"{_DEEP}/bottom", b"deep"),
            entry("./dotted/./path//file", b"d"),
        ),
        layer(entry("names/.wh.\udcff\udcfe not utf-8", b""), entry(f"{_DEEP}/.wh.bottom", b""), entry(f"{_DEEP}/new", b"n")),
        _old_format(),
    ]  # fmt: skip


def _old_format() -> bytes:
    """As GNU tar writes long names, before pax."""
    import io

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        info, data = entry("gnu/" + "g" * 200 + "/größe", b"gnu", uid=3_000_000)
        archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def _special(materials: Materials) -> list[bytes]:
    return [
        busybox(materials),
        layer(
            entry("pipes/fifo", type=tarfile.FIFOTYPE, mode=0o622, uid=1000),
            entry("chroot/dev/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3, mode=0o666),
            entry("chroot/dev/sda", type=tarfile.BLKTYPE, devmajor=8, devminor=0, mode=0o660, gid=6),
            entry("dev/made-up", b"hidden by the mount"),
            entry("proc/made-up", b"hidden by the mount"),
            entry("sys/made-up", b"hidden by the mount"),
            entry("high", b"h", uid=_HIGH, gid=_HIGH),
            entry("high-directory", uid=2_000_000_000, gid=2_000_000_001),
            symlink("high-link", "high"),
            entry("old", b"o", mtime=-86_400),
            entry("precise", b"p", pax_headers={"mtime": "1234567890.123456789"}),
            entry("future", b"f", mtime=5_000_000_000),
        ),
    ]


def _layers(materials: Materials) -> list[bytes]:
    """With the first one and the probe's, as many as a container's overlay can have."""
    found = [busybox(materials)]
    for number in range(125):
        found.append(
            layer(
                entry("counter", str(number).encode(), mode=0o600 + number % 64),
                entry(f"by-layer/{number}", b"x" * number),
                *([entry(f"by-layer/.wh.{number - 3}", b"")] if number % 5 == 4 else []),
            )
        )
    return found


def _many(materials: Materials) -> list[bytes]:
    source = random.Random(21)
    files = [
        entry(f"data/{number % 200:03}/{number:05}", source.randbytes(source.randint(0, 4000)))
        for number in range(20_000)
    ]
    return [busybox(materials), layer(*(entry(f"data/{number:03}") for number in range(200)), *files)]


RECIPES = (
    Recipe(
        name="modes",
        why="read-only, setuid and setgid files, sticky directories, a root that is not 0755",
        layers=_modes,
        config={"User": "app", "Cmd": ["/usr/bin/suid"]},
    ),
    Recipe(name="attributes", why="extended attributes and capabilities of files", layers=_attributes),
    Recipe(name="hard-links", why="hard links within a layer", layers=_hard_links),
    Recipe(
        name="links-across-layers",
        why="hard links to files of earlier layers, which containerd's overlayfs cannot unpack",
        layers=_links_across_layers,
    ),
    Recipe(name="whiteouts", why="whiteouts and opaque directories over five layers", layers=_whiteouts),
    Recipe(name="kinds", why="layers that replace a file by a directory and the reverse", layers=_kinds),
    Recipe(name="names", why="names that are not ASCII or UTF-8, long ones, deep paths", layers=_names),
    Recipe(name="special", why="devices, pipes, high uids, odd times", layers=_special),
    Recipe(
        name="layers-127",
        why="as many layers as a container can have",
        layers=_layers,
    ),
    Recipe(name="files-20000", why="20,000 files", layers=_many),
)
