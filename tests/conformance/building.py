"""Builds the images' archives once; a changed recipe, or anything that an image is made of, makes another archive."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.cluster.lock import exclusive
from tests.conformance.archive import Recipe, write
from tests.conformance.materials import DIRECTORY, Materials

HERE = Path(__file__).resolve().parent
_SOURCES = ("archive.py", "bases.py", "catalogue.py", "file_recipes.py", "materials.py", "probe/main.go")


def build(recipe: Recipe) -> Path:
    """Return the image's archive; older ones of it are removed."""
    sources = b"\0".join((HERE / name).read_bytes() for name in _SOURCES)
    sources += (HERE.parent / "local" / "oci.py").read_bytes()
    key = hashlib.sha256(sources).hexdigest()[:12]
    path = DIRECTORY / "archives" / f"{recipe.name}-{key}.tar"
    with exclusive(DIRECTORY / "lock"):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            for old in path.parent.glob(f"{recipe.name}-*.tar"):
                if len(old.name) == len(path.name):
                    old.unlink()
            part = path.with_suffix(".part")
            write(part, recipe, Materials())
            part.rename(path)
    return path
