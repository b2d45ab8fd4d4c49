"""What Traefik's build needs besides its module: the forks that its go.mod names, and stand-ins for two modules."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cluster.gomodules import module_source
from tests.cluster.paths import HERE
from tests.cluster.versions import GoModule

# The client of certificate authorities; its DNS providers bring the SDKs of all clouds.
_LEGO = GoModule(path="github.com/go-acme/lego/v5", version="v5.4.1", programs={})
_REPLACED = {
    # The fork's last version, which Traefik's go.mod names, cannot be downloaded everywhere.
    "github.com/abbot/go-http-auth": "github.com/containous/go-http-auth v0.4.1-0.20200324110947-a37a7636d23e",
    "github.com/gorilla/mux": "github.com/containous/mux v0.0.0-20250523120546-41b6ec3aed59",
}


def requirements(module: GoModule, *, directory: Path) -> str:
    """Lines of a go.mod in `directory`, where the stand-ins are put."""
    lego, ext = directory / "lego", directory / "ext"
    shutil.copytree(module_source(_LEGO), lego)
    for path in (lego, *lego.rglob("*")):  # copied with the modes of the module cache, which is read-only
        path.chmod(path.stat().st_mode | 0o200)
    _put("lego_dns", lego / "providers/dns/zz_gen_dns_providers.go")
    # A directory of the repository that is a module of its own, so Traefik's module is without it.
    ext.mkdir()
    (ext / "go.mod").write_text("module github.com/traefik/traefik/dynamic/ext\n\ngo 1.26.0\n")
    _put("traefik_ext", ext / "ext.go")
    replaced = {**_REPLACED, _LEGO.path: "./lego", "github.com/traefik/traefik/dynamic/ext": "./ext"}
    lines = [f"require {module.path} {module.version}"]
    lines += [f"replace {path} => {by}" for path, by in replaced.items()]
    return "\n".join(lines) + "\n"


def _put(patch: str, path: Path) -> None:
    path.write_text((HERE / "patches" / f"{patch}.go.txt").read_text())
