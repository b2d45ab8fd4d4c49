"""doctor: checks this machine, the server, or an installation on a cluster, with advice for what is wrong."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from sandlot import _local
from sandlot.cli import output
from sandlot.cli.cluster.options import Context, Kubeconfig, Namespace, Options, ReleaseName
from sandlot.config import named_endpoint
from sandlot.errors import SandlotError

CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID = 0x10000000, 0x00020000, 0x20000000


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check: `state` is ok, warn or fail; `advice` says how to fix warn and fail."""

    name: str
    state: str
    detail: str
    advice: str = ""


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Check an installation on Kubernetes, by kubectl.")
    ] = False,
    namespace: Namespace = None,
    release: ReleaseName = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    json: output.Json = False,
) -> int:
    """Check this machine and the server, or with --cluster an installation; exit with 1 if a check fails."""
    options = Options(namespace, release, context, kubeconfig)
    if cluster:
        from sandlot.cli.cluster import command

        return command.check(options, json=json)
    if options != Options():
        raise typer.BadParameter(
            "--namespace, --release, --context and --kubeconfig choose an installation: add --cluster"
        )
    checks = [check() for check in _CHECKS]
    if json:
        output.show([output.plain(check) for check in checks], json=True, text="")
    else:
        for check in checks:
            print(f"{check.state:<5} {check.name}: {check.detail}")
            if check.advice:
                print(f"      → {check.advice}")
    return output.FAILED if any(check.state == "fail" for check in checks) else 0


def _python() -> Check:
    return Check("python", "ok", f"{platform.python_version()} at {sys.executable}")


def _kernel() -> Check:
    if not sys.platform.startswith("linux"):
        return Check(
            "kernel", "warn", platform.system(), "only a server elsewhere can be used: set SANDLOT_URL"
        )
    release = platform.release()
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    if numbers < (5, 11):
        return Check("kernel", "warn", release, "Linux 5.11 or newer lets ordinary users mount an overlay")
    return Check("kernel", "ok", f"Linux {release}")


def _try_namespaces() -> str | None:
    """Create user, mount and PID namespaces in a child; return None on success, else the error."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        flags = CLONE_NEWNS | CLONE_NEWPID | (0 if os.geteuid() == 0 else CLONE_NEWUSER)
        failed = libc.unshare(flags) != 0
        os.write(writing, os.strerror(ctypes.get_errno()).encode() if failed else b"")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(pid, 0)
    return text or None


def _namespaces() -> Check:
    if not sys.platform.startswith("linux"):
        return Check("namespaces", "warn", "not Linux")
    reason = _try_namespaces()
    who = "as root" if os.geteuid() == 0 else "as an ordinary user"
    if reason is None:
        return Check("namespaces", "ok", f"can be made {who}")
    advice = (
        "root without CAP_SYS_ADMIN: run outside this container, or give it that capability"
        if os.geteuid() == 0
        else "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, or "
        "kernel.apparmor_restrict_unprivileged_userns=0), or run as root"
    )
    return Check("namespaces", "fail", f"cannot be made {who}: {reason}", advice)


def _overlay() -> Check:
    try:
        known = Path("/proc/filesystems").read_text().split()
    except OSError:
        return Check("overlay", "warn", "/proc/filesystems cannot be read")
    if "overlay" in known:
        return Check("overlay", "ok", "supported by the kernel")
    return Check("overlay", "fail", "not supported by the kernel", "modprobe overlay")


def _cgroups() -> Check:
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        own = _own_cgroup()
        if os.access(own, os.W_OK):
            return Check("cgroups", "ok", f"v2, writable at {own}")
        return Check(
            "cgroups",
            "warn",
            f"v2, {own} is not writable",
            "limits will be rlimits only; run as root or under systemd-run --user --scope -p Delegate=yes",
        )
    if os.access(root / "memory", os.W_OK):
        return Check("cgroups", "ok", "v1, writable")
    return Check("cgroups", "warn", "none is writable", "limits will be rlimits only; run as root")


def _own_cgroup() -> Path:
    try:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                return Path("/sys/fs/cgroup") / line[3:].lstrip("/")
    except OSError:
        pass
    return Path("/sys/fs/cgroup")


def _files_limit() -> Check:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    detail = f"{soft} open files, at most {hard}"
    if hard != resource.RLIM_INFINITY and hard < 4096:
        return Check("limits", "warn", detail, "thousands of sandboxes need more: ulimit -Hn 65536")
    return Check("limits", "ok", detail)


def _package() -> Check:
    missing = [name for name in ("sandlot_gateway", "sandlot_sidecar") if find_spec(name) is None]
    if missing:
        return Check(
            "local stack", "warn", f"not installed: {', '.join(missing)}", "pip install 'sandlot[local]'"
        )
    return Check("local stack", "ok", "installed")


def _images() -> Check:
    if shutil.which("skopeo"):
        return Check("images", "ok", "skopeo is installed: references can be pulled")
    return Check(
        "images",
        "warn",
        "skopeo is not installed",
        "install it to use image references; `host` and OCI archives work",
    )


def _state_dir() -> Check:
    directory = _local.state_dir()
    nearest = directory
    while not nearest.exists():
        nearest = nearest.parent
    if not os.access(nearest, os.W_OK):
        return Check(
            "state", "fail", f"{directory} cannot be made", "set SANDLOT_HOME to a directory of yours"
        )
    usage = shutil.disk_usage(nearest)
    if usage.free < 1 << 30:
        return Check(
            "state", "warn", f"{directory}: {usage.free >> 20} MiB free", "free space, or set SANDLOT_HOME"
        )
    return Check("state", "ok", f"{directory}, {usage.free >> 30} GiB free")


def _server() -> Check:
    try:
        named = named_endpoint(url=output.connection.url, api_key=output.connection.api_key)
        if named is None:
            found = _local.running(_local.state_dir())
            if found is None:
                return Check(
                    "server", "ok", "none is named and no local stack runs; the first use starts one"
                )
            named = found
        from sandlot import Client

        with Client(url=named.url, api_key=named.api_key, retry_for=1.0) as client:
            client.call("GET", "/user/whoami", timeout=5.0)
    except SandlotError as error:
        return Check("server", "fail", str(error), "check SANDLOT_URL and SANDLOT_API_KEY, and that it runs")
    return Check("server", "ok", f"{named.url} responds and accepts the key")


_CHECKS: tuple[Callable[[], Check], ...] = (
    _python,
    _kernel,
    _namespaces,
    _overlay,
    _cgroups,
    _files_limit,
    _package,
    _images,
    _state_dir,
    _server,
)
