"""Renders the Dockerfiles from the list of contents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from images.contents import BUNDLE, DEBIAN, EPOCH, HOLDER, IMAGES, STDLIB, TARGET, Image
from images.requirements import ROOT

HEADER = "# This file is auto-generated from images/contents.py by `python -m images generate`: do not change it.\n"
UV = "0.13.8"


def path_of(image: Image) -> Path:
    """Return the path of an image's Dockerfile."""
    return ROOT / "images" / f"Dockerfile.{image.name}"


def _install(packages: tuple[str, ...]) -> str:
    words = " ".join(sorted(packages))
    return (
        "RUN apt-get update \\\n"
        f" && apt-get install -y --no-install-recommends {words} \\\n"
        " && rm -rf /var/lib/apt/lists/* /usr/share/doc /usr/share/man /usr/share/locale\n"
    )


def _builder(image: Image) -> str:
    sources = " ".join(f"./{package}" for package in image.packages)
    copies = "".join(f"COPY {package} {package}\n" for package in image.packages)
    return (
        f"FROM debian:{DEBIAN}-slim AS build\n"
        f"{_install(('python3', 'python3-venv', 'ca-certificates'))}"
        "WORKDIR /src\n"
        "COPY images/requirements images/requirements\n"
        f"RUN python3 -m venv /uv && /uv/bin/pip install --quiet uv=={UV} \\\n"
        " && VIRTUAL_ENV=/uv /uv/bin/uv pip install --require-hashes -r images/requirements/builder.txt\n"
        f"RUN VIRTUAL_ENV=/uv /uv/bin/uv pip install --target {TARGET} --require-hashes "
        f"-r images/requirements/{image.name}.txt\n"
        f"{copies}"
        f"RUN VIRTUAL_ENV=/uv /uv/bin/uv pip install --target {TARGET} --no-deps --no-build-isolation {sources} \\\n"
        f" && rm -rf {TARGET}/bin {TARGET}/.lock \\\n"
        f" && {_compiled(image.optimise, TARGET)}\n"
        f"{_bundle(image) if image.bundle else ''}"
        f"{_holder() if image.holder else ''}"
        "\n"
    )


def _compiled(levels: Sequence[int], place: str) -> str:
    options = " ".join(f"-o {level}" for level in levels)
    return f"PYTHONHASHSEED=0 python3 -m compileall -q {options} --invalidation-mode unchecked-hash {place}"


def _bundle(image: Image) -> str:
    names = " ".join(image.bundle)
    return (
        "COPY images/bundle.py images/bundle.py\n"
        f"RUN {_compiled(image.optimised, STDLIB)} \\\n"
        f" && python3 images/bundle.py / {BUNDLE} {names}\n"
    )


def _holder() -> str:
    return f"COPY images/holder.py images/holder.py\nRUN python3 images/holder.py {HOLDER}\n"


def render(image: Image) -> str:
    """Return a Dockerfile whose build context is the repository's root."""
    lines = [HEADER, f"# {image.title}. docker build -f images/Dockerfile.{image.name} .\n"]
    if image.packages:
        lines.append(_builder(image))
    lines.append(f"FROM debian:{DEBIAN}-slim\n")
    lines.append(f"ENV SOURCE_DATE_EPOCH={EPOCH}\n")
    lines.append(_install(image.debian))
    if image.packages:
        if image.optimised:
            lines.append(f"RUN {_compiled(image.optimised, STDLIB)}\n")
        lines.append(f"COPY --from=build {TARGET} {TARGET}\n")
    if image.bundle:
        lines.append(f"COPY --from=build {BUNDLE} {BUNDLE}\n")
    if image.holder:
        lines.append(f"COPY --from=build {HOLDER} {HOLDER}\n")
    lines += [f"ENV {name}={value}\n" for name, value in image.environment.items()]
    lines += [f"EXPOSE {port}\n" for port in image.ports]
    lines.append(f"USER {image.user}\n")
    if image.entrypoint:
        lines.append(f"ENTRYPOINT {json.dumps(list(image.entrypoint))}\n")
    if image.command:
        lines.append(f"CMD {json.dumps(list(image.command))}\n")
    return "".join(lines)


def generated() -> dict[Path, str]:
    """Return every Dockerfile by its path."""
    return {path_of(image): render(image) for image in IMAGES}
