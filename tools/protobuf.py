"""Generates the gateway's Python code from proto/*.proto: messages, their types, the Connect service.

`--check` writes nothing and fails if a generated file differs from its .proto.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "proto"
OUT = ROOT / "gateway" / "src" / "sandlot_gateway" / "rpc" / "generated"
ABOUT = '"""What tools/protobuf.py makes of proto/: do not change it."""\n'
SERVICE = '"""The services of a .proto over Connect: server and client."""\n\n'


def generate(out: Path) -> None:
    """Run protoc with its plugins, which are installed beside this Python."""
    files = [path.name for path in sorted(SOURCE.glob("*.proto"))]
    plugins = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={SOURCE}"),
            *(f"--python_out={out}", f"--pyi_out={out}", f"--connectrpc_out={out}"),
            "--connectrpc_opt=protobuf=google,io=async",
            *files,
        ],
        check=True,
        env={**os.environ, "PATH": plugins},
    )
    (out / "__init__.py").write_text(ABOUT)
    for path in out.glob("*_connect.py"):
        path.write_text(SERVICE + path.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as directory:
        generate(Path(directory))
        wanted = {path.name: path.read_bytes() for path in Path(directory).iterdir()}
    there = {path.name: path.read_bytes() for path in OUT.iterdir() if path.is_file()} if OUT.is_dir() else {}
    faults = sorted(name for name in {*wanted, *there} if wanted.get(name) != there.get(name))
    if check:
        for name in faults:
            print(f"{OUT.relative_to(ROOT) / name}: differs from proto/; run `make generate`")
        return 1 if faults else 0
    OUT.mkdir(parents=True, exist_ok=True)
    for name in faults:
        if name in wanted:
            (OUT / name).write_bytes(wanted[name])
        else:
            (OUT / name).unlink()
        print(OUT.relative_to(ROOT) / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
