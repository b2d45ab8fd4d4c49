"""Generates Python code from proto/: the gateway's messages and Connect service, the node agent's messages of containerd.

`--check` writes nothing and fails if a generated file differs from its .proto.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ABOUT = '"""What tools/protobuf.py makes of proto/: do not change it."""\n'
SERVICE = '"""The services of a .proto over Connect: server and client."""\n\n'


@dataclass(frozen=True)
class Target:
    """Files below `source` become modules below `out`; protoc's names start with `package`, a path below both."""

    source: Path
    out: Path
    package: str = "."
    options: tuple[str, ...] = ()

    @property
    def directory(self) -> Path:
        """Return the directory that contains generated files and nothing else."""
        return self.out / self.package


TARGETS = (
    Target(
        source=ROOT / "proto",
        out=ROOT / "gateway" / "src" / "sandlot_gateway" / "rpc" / "generated",
        options=("--connectrpc_out={out}", "--connectrpc_opt=protobuf=google,io=async"),
    ),
    Target(source=ROOT / "proto" / "node", out=ROOT / "node" / "src", package="sandlot_node/protos"),
)


def generate(target: Target, out: Path) -> Path:
    """Run protoc with its plugins, which are installed beside this Python, and return the directory of its files."""
    files = [
        str(path.relative_to(target.source)) for path in (target.source / target.package).glob("*.proto")
    ]
    plugins = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={target.source}"),
            *(f"--python_out={out}", f"--pyi_out={out}"),
            *(option.format(out=out) for option in target.options),
            *sorted(files),
        ],
        check=True,
        env={**os.environ, "PATH": plugins},
    )
    directory = out / target.package
    (directory / "__init__.py").write_text(ABOUT)
    for path in directory.glob("*_connect.py"):
        path.write_text(SERVICE + path.read_text())
    return directory


def _contents(directory: Path) -> dict[str, bytes]:
    if not directory.is_dir():
        return {}
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def update(target: Target, *, check: bool) -> bool:
    """Write what differs, or print it; return whether something did."""
    with tempfile.TemporaryDirectory() as directory:
        wanted = _contents(generate(target, Path(directory)))
    there = _contents(target.directory)
    faults = sorted(name for name in {*wanted, *there} if wanted.get(name) != there.get(name))
    for name in faults:
        path = target.directory / name
        if check:
            print(f"{path.relative_to(ROOT)}: differs from proto/; run `make generate`")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in wanted:
            path.write_bytes(wanted[name])
        else:
            path.unlink()
        print(path.relative_to(ROOT))
    return bool(faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    faults = [update(target, check=check) for target in TARGETS]
    return 1 if check and any(faults) else 0


if __name__ == "__main__":
    sys.exit(main())
