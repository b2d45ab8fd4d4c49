"""Makes the node image that kind starts: a Debian with systemd, kind's own files, and the programs built here."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from images.contents import DEBIAN
from images.oci import Entry, write_archive, write_layer
from images.rootfs import bootstrap
from tests.cluster import versions
from tests.cluster.gobuild import PATCHES, module_source
from tests.cluster.paths import BIN, CACHE, HERE, LOGS
from tests.cluster.shell import ClusterError, run, say

EPOCH = 1767225600
WORK = CACHE / "node"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CNI_IMAGE = "sandlot.test/cluster/cni:1"
POLICY_IMAGE = "sandlot.test/cluster/network-policies:1"

SYSTEM = ("kubelet", "kubectl", "kubeadm")
LOCAL = ("containerd", "containerd-shim-runc-v2", "ctr", "crictl")
PLUGINS = ("loopback", "ptp", "host-local", "portmap")
# What the network's images need besides their own program.
TOOLS = ("bash", "cat", "mv", "sleep", "ip", "nft", "conntrack")

WANTS_LEFT_OUT = (
    "lib/systemd/system/multi-user.target.wants/*",
    "lib/systemd/system/basic.target.wants/*",
    "lib/systemd/system/local-fs.target.wants/*",
    "lib/systemd/system/timers.target.wants/*",
    "lib/systemd/system/sockets.target.wants/*udev*",
    "lib/systemd/system/sockets.target.wants/*initctl*",
    "lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
    "etc/systemd/system/*.wants/*",
)
# Units that would change the host's kernel, or wait for what a container has not got.
MASKED = (
    "systemd-binfmt.service",
    "systemd-sysctl.service",
    "systemd-modules-load.service",
    "systemd-logind.service",
    "getty.target",
    "dev-hugepages.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "sys-kernel-config.mount",
    "sys-fs-fuse-connections.mount",
    "proc-sys-fs-binfmt_misc.automount",
)


def tag() -> str:
    """The image's name, with a digest of everything that it is made of."""
    parts = [Path(__file__).read_bytes(), repr(versions.NODE_PACKAGES).encode(), DEBIAN.encode()]
    parts += [path.read_bytes() for path in sorted((HERE / "node").iterdir())]
    for module in versions.MODULES.values():
        parts.append(f"{module.path}@{module.version}".encode())
    parts += [f"{name}:{patch.digest}".encode() for name, patch in sorted(PATCHES.items())]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    return f"sandlot.test/cluster/node:{digest}"


def rootfs() -> Path:
    """Lays out the node's root file system and gives its directory; the caller removes it."""
    base = _base()
    WORK.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="rootfs-", dir=WORK))
    root.chmod(0o755)
    run(["tar", "-C", root, "-xf", base, "--numeric-owner"])
    _kind_files(root)
    _programs(root)
    _units(root)
    _own_files(root)
    return root


def _base() -> Path:
    key = hashlib.sha256(repr((versions.NODE_PACKAGES, DEBIAN)).encode()).hexdigest()[:12]
    base = WORK / f"base-{key}.tar"
    if not base.exists():
        say("making the node's Debian")
        bootstrap(base, packages=versions.NODE_PACKAGES, variant="minbase")
    return base


def _kind_files(root: Path) -> None:
    """kind's own files for its base image, which come with its module."""
    source = module_source(versions.MODULES["kind"]) / "images" / "base" / "files"
    for name in ("etc/crictl.yaml", "etc/default/kubelet", "etc/containerd/config.toml"):
        _put(root, path=name, text=(source / name).read_text())
    units = ("containerd.service", "kubelet.service", "kubelet.slice", "kubelet.service.d/10-kubeadm.conf")
    for name in units:
        path = f"etc/systemd/system/{name}"
        _put(root, path=path, text=(source / path).read_text())
    script = "kind/bin/create-kubelet-cgroup-v2.sh"
    _put(root, path=script, text=(source / script).read_text(), mode=0o755)


def _put(root: Path, *, path: str, text: str, mode: int = 0o644) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    target.chmod(mode)


def _programs(root: Path) -> None:
    for directory, names in (("usr/bin", SYSTEM), ("usr/local/bin", LOCAL)):
        for name in names:
            shutil.copy2(BIN / name, root / directory / name)
    plugins = root / "opt/cni/bin"
    plugins.mkdir(parents=True)
    for name in PLUGINS:
        shutil.copy2(BIN / f"cni-{name}", plugins / name)


def _units(root: Path) -> None:
    for pattern in WANTS_LEFT_OUT:
        for path in root.glob(pattern):
            path.unlink()
    units = root / "etc/systemd/system"
    for name in MASKED:
        (units / name).symlink_to("/dev/null")
    wanted = units / "multi-user.target.wants"
    wanted.mkdir(parents=True, exist_ok=True)
    for name in ("containerd.service", "kubelet.service"):
        (wanted / name).symlink_to(f"/etc/systemd/system/{name}")
    # Without CAP_SYS_RESOURCE a unit that asks for more than it has does not start.
    unit = units / "containerd.service"
    kept = [
        line for line in unit.read_text().splitlines() if not line.startswith(("Limit", "OOMScoreAdjust"))
    ]
    unit.write_text("\n".join(kept) + "\n")
    drop_in = "etc/systemd/system/kubelet.service.d/11-sandlot.conf"
    _put(root, path=drop_in, text="[Service]\nExecStartPre=/kind/bin/kubelet-cgroups\n")
    with (root / "etc/systemd/journald.conf").open("a") as journald:
        journald.write("ReadKMsg=no\n")
    init = root / "usr/sbin/init"
    if not init.is_symlink():
        init.symlink_to("/usr/lib/systemd/systemd")


def _own_files(root: Path) -> None:
    node = HERE / "node"
    _put(root, path="usr/local/bin/entrypoint", text=(node / "entrypoint").read_text(), mode=0o755)
    _put(root, path="kind/bin/kubelet-cgroups", text=(node / "kubelet-cgroups").read_text(), mode=0o755)
    _put(root, path="kind/version", text=f"v{versions.KUBERNETES}")
    _put(root, path="kind/manifests/default-cni.yaml", text=(node / "cni.yaml").read_text())
    _put(root, path="kind/manifests/default-storage.yaml", text=(node / "storage.yaml").read_text())
    (root / "etc/kubernetes/manifests").mkdir(parents=True)
    config = root / "etc/containerd/config.toml"
    config.write_text(containerd_config(config.read_text(), pause=control_plane_images()["pause"]))
    # Containers get the limits that containerd has, as in kind: the default of 1,024 open files is too few.
    spec = run(["chroot", root, "/bin/sh", "-c", "ctr oci spec | jq 'del(.process.rlimits)'"])
    _put(root, path="etc/containerd/cri-base.json", text=spec)


def containerd_config(text: str, *, pause: str) -> str:
    """kind's configuration of containerd for this image: our pause image, and no score that may not be lowered."""
    lines = []
    for line in text.splitlines():
        if "sandbox_image" in line:
            line = f'  sandbox_image = "{pause}"'
        elif "restrict_oom_score_adj =" in line:
            line = "  restrict_oom_score_adj = true"
        lines.append(line)
    result = "\n".join(lines) + "\n"
    if pause not in result or "restrict_oom_score_adj = true" not in result:
        raise ClusterError("kind's configuration of containerd is not as expected: another version of kind?")
    return result


def control_plane_images() -> dict[str, str]:
    """The images that kubeadm wants, by the name of the program in them."""
    command = [BIN / "kubeadm", "config", "images", "list", "--kubernetes-version", f"v{versions.KUBERNETES}"]
    names = run(command).split()
    return {name.rsplit("/", 1)[1].rsplit(":", 1)[0]: name for name in names}


def archives(*, root: Path, out: Path) -> list[Path]:
    """Writes the images of the control plane and of the network as archives: one program each, some with tools."""
    out.mkdir(parents=True)
    pause = out / "pause"
    run(["gcc", "-Os", "-static", "-s", "-o", pause, HERE / "node" / "pause.c"])
    tools = out / "tools.layer"
    # Without it nft tells protocols as numbers, and kube-proxy, which reads its own rules again an hour after its start,
    # takes those of every Service for somebody else's and deletes them.
    protocols = Entry(path="etc/protocols", source=root / "etc/protocols")
    write_layer(tools, entries=[*closure(root, programs=TOOLS), protocols], epoch=EPOCH)
    names = control_plane_images()
    cni = [
        Entry(path="usr/bin/kubectl", source=BIN / "kubectl"),
        Entry(path="usr/bin/sandlot-cni", source=HERE / "node" / "cni"),
    ]
    contents: dict[str, tuple[list[Entry], bool]] = {CNI_IMAGE: (cni, True)}
    policies = Entry(path="usr/bin/kube-network-policies", source=BIN / "kube-network-policies")
    contents[POLICY_IMAGE] = ([policies], True)
    for program in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd", "kube-proxy"):
        entry = Entry(path=f"usr/local/bin/{program}", source=BIN / program, owner=(0, 0))
        contents[names[program]] = ([entry], program == "kube-proxy")
    contents[names["coredns"]] = ([Entry(path="coredns", source=BIN / "coredns")], False)
    contents[names["pause"]] = ([Entry(path="pause", source=pause)], False)
    entrypoints = {names["coredns"]: ["/coredns"], names["pause"]: ["/pause"]}
    written = []
    for number, (reference, (entries, with_tools)) in enumerate(sorted(contents.items())):
        layer = out / f"{number}.layer"
        write_layer(layer, entries=entries, epoch=EPOCH)
        config = {"Env": [f"PATH={PATH}"], "Entrypoint": entrypoints.get(reference, [])}
        archive = out / f"{number}.tar"
        layers = [tools, layer] if with_tools else [layer]
        write_archive(archive, reference=reference, layers=layers, config=config, epoch=EPOCH)
        written.append(archive)
    return written


def closure(root: Path, *, programs: tuple[str, ...]) -> list[Entry]:
    """Programs of a root file system and the libraries they load, with the links that lead to them."""
    listing = "for p in \"$@\"; do w=$(command -v $p); readlink -f $w; ldd $w | grep -oE '/[^ ]+'; done"
    loaded = run(["chroot", root, "/bin/bash", "-c", listing, "closure", *programs]).split()
    entries = {name: Entry(path=name, source=root / name) for name in ("bin", "sbin", "lib", "lib64")}
    for name in loaded:
        path = Path(name)
        # Libraries are named through /lib, which is a link: the file is entered where it really is, with its links.
        while True:
            parent = Path(os.path.realpath(root / path.parent.relative_to("/"))).relative_to(root)
            place = parent / path.name
            source = root / place
            entries[place.as_posix()] = Entry(path=place.as_posix(), source=source)
            if not source.is_symlink():
                break
            path = Path("/") / parent / os.readlink(source)
    for program in programs:
        for directory in ("usr/bin", "usr/sbin"):
            link = root / directory / program
            if link.is_symlink():
                entries[f"{directory}/{program}"] = Entry(path=f"{directory}/{program}", source=link)
    return list(entries.values())


def import_archives(*, root: Path, images: list[Path]) -> None:
    """Unpacks images into the root file system's containerd, so that a node starts with them."""
    state = Path(tempfile.mkdtemp(prefix="containerd-", dir="/run"))
    config = state / "config.toml"
    config.write_text(
        f'version = 3\nroot = "{root}/var/lib/containerd"\nstate = "{state}/state"\noom_score = 0\n'
        'disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", '
        '"io.containerd.internal.v1.opt"]\n'
        f'[grpc]\naddress = "{state}/sock"\n'
    )
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / "node-image-containerd.log").open("w") as log:
        server = subprocess.Popen(
            [BIN / "containerd", "-c", config], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        ctr = [BIN / "ctr", "-a", f"{state}/sock", "-n", "k8s.io"]
        _wait_for_containerd(ctr=ctr, server=server)
        for image in images:
            run([*ctr, "images", "import", "--local", "--discard-unpacked-layers", image])
    finally:
        server.terminate()
        server.wait(timeout=120)
        shutil.rmtree(state, ignore_errors=True)


def _wait_for_containerd(*, ctr: list[Path | str], server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if server.poll() is not None:
            break
        try:
            run([*ctr, "version"], timeout=10)
        except ClusterError:
            time.sleep(0.2)
        else:
            return
    raise ClusterError(f"containerd does not start: see {LOGS / 'node-image-containerd.log'}")
