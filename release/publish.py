"""Pushes the images and the chart of a release to a registry, with their digests as they are."""

from __future__ import annotations

from pathlib import Path

from images.oci import archive_index
from images.rootfs import run
from release import sums
from release.chart import helm
from release.errors import ReleaseError


def publish(version: str, *, out: Path, registry: str | None, plain_http: bool) -> None:
    """Push, and print what was pushed. Raises ReleaseError or ImageError."""
    if registry is None:
        raise ReleaseError("REGISTRY is missing; write, for example, REGISTRY=registry.example/sandlot")
    names = sums.read(out)
    for name in names:
        if name.startswith("images/"):
            archive = out / name
            image = f"{registry}/{archive.stem}"
            # Otherwise skopeo compresses the layers, and the chart's digests name nothing.
            words = [
                "copy",
                "--quiet",
                "--preserve-digests",
                f"--dest-tls-verify={str(not plain_http).lower()}",
            ]
            run(
                [
                    "skopeo",
                    "--insecure-policy",
                    *words,
                    f"oci-archive:{archive}",
                    f"docker://{image}:{version}",
                ]
            )
            print(f"{image}@{archive_index(archive)[1]}", flush=True)
    chart = next(name for name in names if name.startswith("chart/"))
    run([helm(), "push", out / chart, f"oci://{registry}/charts", *(["--plain-http"] if plain_http else [])])
    print(f"oci://{registry}/charts/sandlot:{version}")
