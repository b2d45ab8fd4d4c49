"""Builds the cluster's programs from pinned Go modules; a program that is there in the right version is kept."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import traefik, versions
from tests.cluster.gomodules import environment, module_source
from tests.cluster.paths import BIN, HERE, LOGS, SRC
from tests.cluster.shell import ClusterError, run, say
from tests.cluster.versions import GoModule


@dataclass(frozen=True, kw_only=True)
class Patch:
    """What is changed in a program's sources: files put under vendor/, and texts replaced wherever they stand in a file."""

    files: dict[str, Path]
    edits: tuple[tuple[str, str, str], ...] = ()

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that change with the patch."""
        text = repr([(target, source.read_text()) for target, source in self.files.items()]) + repr(
            self.edits
        )
        return hashlib.sha256(text.encode()).hexdigest()[:8]


DATAPLANE = "sigs.k8s.io/kube-network-policies/pkg/dataplane"
PATCHES = {
    "containerd-shim-runsc-v1": Patch(
        # The shim insists on a lower oom_score_adj, which takes CAP_SYS_RESOURCE.
        files={
            "github.com/containerd/containerd/v2/pkg/sys/oom_linux.go": HERE / "patches" / "oom_linux.go.txt"
        },
        # One shim for a pod: it stays while other containers run, and says so with an answer that ttrpc refuses
        # to send. containerd then asks for the deletion again, of a container that is gone, for a minute.
        edits=(
            (
                "gvisor.dev/gvisor/pkg/shim/v1/service.go",
                "\t\treturn resp, errgrpc.ToGRPC(nil)\n",
                "\t\treturn &types.Empty{}, nil\n",
            ),
        ),
    ),
    "kube-network-policies": Patch(
        files={f"{DATAPLANE}/queue.go": HERE / "patches" / "nfqueue.go.txt"},
        edits=(
            (
                f"{DATAPLANE}/controller.go",
                "queue := &expr.Queue{Num: uint16(c.config.QueueID)}\n"
                "\tif c.config.FailOpen {\n\t\tqueue.Flag = expr.QueueFlagBypass\n\t}\n",
                "queue := queueTo(c.config)\n",
            ),
            # Answers to connections that a pod has opened: without labels in the kernel's conntrack the rule that
            # lets them pass never holds, and each is judged as if somebody called the pod.
            (
                f"{DATAPLANE}/controller.go",
                "\t\t\t&expr.Ct{Register: 0x1, Key: expr.CtKeyLABELS},\n"
                "\t\t\t&expr.Bitwise{SourceRegister: 0x1, DestRegister: 0x1, Len: 16, "
                "Mask: generateLabelMask(c.config.CTLabelAccept), Xor: make([]byte, 16)},\n"
                "\t\t\t&expr.Cmp{Op: expr.CmpOpNeq, Register: 0x1, Data: make([]byte, 16)},\n"
                "\t\t\t&expr.Ct{Register: 0x1, Key: expr.CtKeySTATE},\n",
                "\t\t\t&expr.Ct{Register: 0x1, Key: expr.CtKeySTATE},\n",
            ),
        ),
    ),
}


@dataclass(frozen=True, kw_only=True)
class BuildInfo:
    """What a Go program says of itself: the package it was built from, that package's module, our patch."""

    package: str
    module: str
    version: str
    patch: str = ""


def parse_build_info(text: str) -> dict[str, BuildInfo]:
    """What `go version -m FILE...` prints, by file name."""
    found: dict[str, BuildInfo] = {}
    for part in re.split(r"(?m)^(?=\S)", text):
        head, _, rest = part.partition("\n")
        fields = dict(re.findall(r"^\t(path|mod)\t(.+)$", rest, re.MULTILINE))
        if len(fields) == 2:
            module, version = fields["mod"].split("\t")[:2]
            name = Path(head.rsplit(":", 1)[0]).name
            patch = re.search(r"-X main\.patch=([0-9a-f]+)", rest)
            found[name] = BuildInfo(
                package=fields["path"], module=module, version=version, patch=patch[1] if patch else ""
            )
    return found


def missing(modules: Mapping[str, GoModule] = versions.MODULES) -> list[str]:
    """The programs that are not there, or not in the version that is wanted."""
    there = [BIN / name for module in modules.values() for name in module.programs]
    there = [path for path in there if path.is_file()]
    known = parse_build_info(run(["go", "version", "-m", *there])) if there else {}
    wanted = []
    for module in modules.values():
        for name, package in module.programs.items():
            patch = PATCHES[name].digest if name in PATCHES else ""
            want = BuildInfo(package=package, module=module.path, version=module.version, patch=patch)
            if known.get(name) != want:
                wanted.append(name)
    return wanted


def build(*, names: list[str], modules: Mapping[str, GoModule] = versions.MODULES) -> None:
    """Builds the named programs."""
    if shutil.which("go") is None:
        raise ClusterError("go: not found; the cluster's programs are built with Go 1.26 or newer")
    BIN.mkdir(parents=True, exist_ok=True)
    chosen = {key: [name for name in module.programs if name in names] for key, module in modules.items()}
    wanted = {key: programs for key, programs in chosen.items() if programs}
    # While the programs of one module are compiled, the next ones are downloaded.
    ahead = ThreadPoolExecutor(1)
    try:
        directories = {
            key: ahead.submit(_module_directory, key=key, module=modules[key], programs=programs)
            for key, programs in wanted.items()
        }
        for key, programs in wanted.items():
            directory = directories[key].result()
            for name in programs:
                _build(directory=directory, module=modules[key], name=name)
    finally:
        ahead.shutdown(cancel_futures=True)


def own_program(name: str, *, of: Sequence[Path], directory: Path, build: Callable[[Path], object]) -> Path:
    """Return a program of the tests' own in a cache directory: `build` writes it, once for the contents of `of`."""
    sources = b"\0".join(path.read_bytes() for path in of)
    path = directory / f"{name}-{hashlib.sha256(sources).hexdigest()[:12]}"
    if not path.exists():
        say(f"building the tests' own program {name}")
        for old in directory.glob(f"{name}-*"):
            old.unlink()
        part = path.with_suffix(".part")
        build(part)
        part.rename(path)
    return path


def _module_directory(*, key: str, module: GoModule, programs: list[str]) -> Path:
    """A module of ours that requires the wanted one, so that its checksums are kept and vendoring is possible."""
    directory = SRC / key
    directory.mkdir(parents=True, exist_ok=True)
    go_mod = directory / "go.mod"
    if f"{module.path} {module.version}" not in (go_mod.read_text() if go_mod.exists() else ""):
        shutil.rmtree(directory)
        directory.mkdir()
        text = f"module build/{key}\n\ngo 1.26.0\n"
        if key == "k8s":
            text += _kubernetes_requirements(module)
        elif key == "traefik":
            text += traefik.requirements(module, directory=directory)
        go_mod.write_text(text)
        # The module's own checksums, authenticated with it: a checksum database that is reached through a proxy may
        # lack commits between releases.
        checksums = module_source(module) / "go.sum"
        if checksums.exists():
            (directory / "go.sum").write_text(checksums.read_text())
    if key == "k8s":
        tools = "".join(f'import _ "{package}"\n' for package in module.programs.values())
        source = f"//go:build tools\n\npackage tools\n\n{tools}"
        if not (directory / "tools.go").exists() or (directory / "tools.go").read_text() != source:
            (directory / "tools.go").write_text(source)
            run(["go", "mod", "tidy", "-e"], env=environment(), cwd=directory)
    else:
        for name in programs:
            package = module.programs[name]
            if f"\t{package}\n" not in go_mod.read_text() and f"tool {package}\n" not in go_mod.read_text():
                run(["go", "get", "-tool", f"{package}@{module.version}"], env=environment(), cwd=directory)
    return directory


def _kubernetes_requirements(module: GoModule) -> str:
    """Kubernetes replaces its staging modules by directories that are not published: name the published twins."""
    staging = re.findall(
        r"^\s*(k8s\.io/[a-z-]+) => \./staging", (module_source(module) / "go.mod").read_text(), re.M
    )
    if not staging:
        raise ClusterError(f"{module.path}: no staging modules found in its go.mod")
    twin = "v0." + module.version.removeprefix("v1.")
    lines = [
        f"require {module.path} {module.version}",
        *(f"replace {name} => {name} {twin}" for name in staging),
    ]
    return "\n".join(lines) + "\n"


def _linker_flags(*, module: GoModule, name: str) -> str:
    flags = "-s -w"
    if module.path == "k8s.io/kubernetes":
        prefix = "-X k8s.io/component-base/version.git"
        minor = module.version.split(".")[1]
        flags += f" {prefix}Version={module.version} {prefix}Major=1 {prefix}Minor={minor}"
    if name in PATCHES:
        # Sets nothing in the program, but is kept in what it says of itself.
        flags += f" -X main.patch={PATCHES[name].digest}"
    return flags


def _build(*, directory: Path, module: GoModule, name: str) -> None:
    say(f"building {name} {module.version}")
    env = environment()
    vendor = directory / "vendor"
    patch = PATCHES.get(name)
    try:
        if patch is not None:
            run(["go", "mod", "vendor"], env=env, cwd=directory)
            _apply(patch, vendor=vendor)
            env["GOFLAGS"] = "-mod=vendor"
        # To a second name first: a build that was stopped must not leave half a program under the wanted one.
        part = BIN / f".{name}.part"
        flags = _linker_flags(module=module, name=name)
        command = ["go", "build", "-ldflags", flags, "-o", part, module.programs[name]]
        run(command, env=env, cwd=directory, timeout=3600, log=LOGS / f"build-{name}.log")
        part.rename(BIN / name)
    finally:
        if patch is not None:
            shutil.rmtree(vendor, ignore_errors=True)


def _apply(patch: Patch, *, vendor: Path) -> None:
    for target, source in patch.files.items():
        shutil.copyfile(source, vendor / target)
    for target, old, new in patch.edits:
        path = vendor / target
        text = path.read_text()
        if old not in text:
            raise ClusterError(f"{target}: what a patch replaces is not in it: another version?")
        path.write_text(text.replace(old, new))
