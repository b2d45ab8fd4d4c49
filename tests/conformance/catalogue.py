"""The images whose sandboxes are compared with containers: the kinds that people use, and every field of the config."""

from __future__ import annotations

from tests.conformance import file_recipes
from tests.conformance.archive import PROBE, Recipe
from tests.conformance.bases import GROUP, PASSWD, accounts, busybox, programs
from tests.conformance.materials import PYTHON, Materials
from tests.local.oci import ARCHITECTURE, entry, layer, symlink

_MUSL = "lib/ld-musl-x86_64.so.1"
_ODD = [
    "PATH=/opt/odd bin:/bin",
    "EMPTY=",
    "EQUALS=a=b=c",
    "SPACES=  two words  ",
    "QUOTES=\"double\" and 'single'",
    "LINES=one\ntwo\n",
    "UNEXPANDED=$HOME/${PATH} $(id) `id`",
    "NON_ASCII=größe 大小 🙂",
    "with.dots-and-dashes=yes",
    "lower_case=yes",
    "TWICE=first",
    "TWICE=second",
    "LONG=" + "x" * 20_000,
]


def _musl(materials: Materials) -> list[bytes]:
    return [
        busybox(materials),
        layer(
            entry(_MUSL, materials.musl(), mode=0o755),
            symlink("lib/libc.musl-x86_64.so.1", "ld-musl-x86_64.so.1"),
            entry("usr/local/bin/ninja", materials.ninja(), mode=0o755),
        ),
    ]


def _distroless(materials: Materials) -> list[bytes]:
    return [
        layer(
            entry("etc"),
            entry(
                "etc/passwd",
                b"root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532::/home/nonroot:/sbin/nologin\n",
            ),
            entry("etc/group", b"root:x:0:\nnonroot:x:65532:\n"),
            entry("home/nonroot", uid=65532, gid=65532, mode=0o700),
            entry("usr/share/zoneinfo/UTC", b"TZif2"),
        )
    ]


def _based(*more: bytes):
    return lambda materials: [busybox(materials), *more]


def _linked(materials: Materials) -> list[bytes]:
    """Directories that are links, also absolute ones; a later layer writes through them."""
    return [
        layer(
            symlink("bin", "usr/bin"),
            symlink("etc", "/usr/etc"),
            symlink("tmp", "var/tmp"),
            symlink("lib", "/usr/../usr/lib"),
            entry("usr/bin"),
            entry("usr/etc"),
            entry("usr/lib/real/deep"),
            entry("var/tmp", mode=0o1777),
            symlink("chain-1", "/chain-2"),
            symlink("chain-2", "usr/../chain-3"),
            symlink("chain-3", "/usr/lib/real"),
            symlink("above", "../../../../usr/lib"),
            symlink("nowhere", "/not/there"),
            symlink("itself", "itself"),
            symlink("usr/lib/to-root", "/"),
            *accounts("usr/etc"),
            *programs(materials, "usr/bin"),
        ),
        layer(
            entry("etc/through", b"through an absolute link"),
            entry("chain-1/through", b"through three"),
            entry("above/through", b"from above the root"),
            entry("usr/lib/to-root/usr/lib/to-root/round", b"round"),
            entry("tmp/kept", b"in /tmp"),
        ),
    ]


RECIPES = (
    Recipe(name="busybox", why="a static program under many names", layers=_based(), config={"Cmd": ["sh"]}),
    Recipe(
        name="debian", why="Debian's smallest system", layers=lambda m: [m.debian()], config={"Cmd": ["bash"]}
    ),
    Recipe(
        name="python",
        why="Debian with Python",
        layers=lambda m: [m.debian(), m.packages(PYTHON)],
        config={"Cmd": ["python3", "-c", "import json, sys; print(json.dumps(sys.version_info[:2]))"]},
    ),
    Recipe(
        name="musl",
        why="programs that are linked with musl, as in Alpine",
        layers=_musl,
        config={"Cmd": ["ninja", "--version"]},
    ),
    Recipe(
        name="distroless",
        why="no shell, no /tmp, a user by number",
        layers=_distroless,
        config={"User": "65532", "WorkingDir": "/home/nonroot", "Entrypoint": [PROBE]},
    ),
    Recipe(name="no-files", why="nothing but one program: no users, no directories", layers=lambda _: []),
    Recipe(
        name="user-name",
        why="a user by name, with groups of which it is a member",
        layers=_based(),
        config={"User": "app", "WorkingDir": "/home/app"},
    ),
    Recipe(
        name="user-number",
        why="a uid that no file names: its group is root's",
        layers=_based(),
        config={"User": "4242"},
    ),
    Recipe(
        name="user-and-group",
        why="user and group by name; the group is not the user's own",
        layers=_based(),
        config={"User": "app:video"},
    ),
    Recipe(
        name="numbers",
        why="uid and gid by number, of which the files know the first",
        layers=_based(),
        config={"User": "1000:7777"},
    ),
    Recipe(
        name="home",
        why="a home directory that does not exist",
        layers=_based(),
        config={"User": "homeless"},
    ),
    Recipe(
        name="home-in-env",
        why="HOME in the config counts more than the user's",
        layers=_based(),
        config={"User": "app", "Env": ["HOME=/somewhere else"]},
    ),
    Recipe(
        name="environment",
        why="odd variables, a working directory that does not exist, entry point with arguments, a stop signal",
        layers=_based(layer(entry("opt/odd bin"), symlink("opt/odd bin/odd", PROBE))),
        config={
            "Env": _ODD,
            "WorkingDir": "/srv/not made/yet",
            "Entrypoint": ["odd"],
            "Cmd": ["self", "", "two words", "$HOME", "größe"],
            "StopSignal": "SIGQUIT",
            "Labels": {"any": "thing"},
            "ExposedPorts": {"80/tcp": {}},
        },
    ),
    Recipe(
        name="links",
        why="/bin, /etc, /tmp and others are symbolic links, some absolute",
        layers=_linked,
        config={"User": "app"},
    ),
    Recipe(
        name="platforms",
        why="an index with several platforms, of which one is this machine's",
        layers=_based(),
        platforms=("linux/s390x", "linux/arm/v7", f"linux/{ARCHITECTURE}", "windows/amd64"),
    ),
    Recipe(
        name="docker",
        why="the media types of Docker's schema 2, with a list of manifests",
        layers=_based(layer(entry("second", b"2"))),
        docker=True,
        platforms=(f"linux/{ARCHITECTURE}", "linux/ppc64le"),
    ),
    Recipe(
        name="compressions",
        why="layers in zstd, gzip and as they are; empty layers",
        layers=_based(
            layer(entry("gzip", b"g" * 100_000)),
            layer(entry("none", b"n" * 100_000)),
            layer(),
            b"",
            layer(entry("gzip", b"again")),
        ),
        compressions=("zstd", "gzip", "none"),
    ),
    *file_recipes.RECIPES,
)
FOREIGN = Recipe(
    name="foreign",
    why="no platform of this machine's",
    layers=lambda _: [],
    platforms=("linux/s390x", "linux/arm/v7"),
)

__all__ = ["FOREIGN", "GROUP", "PASSWD", "RECIPES"]
