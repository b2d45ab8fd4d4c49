"""Brings the cluster up and takes it away; both can be called at any time, also after a crash."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from images.oci import archive_index
from tests.cluster import config, gobuild, nodeimage, registry, sysctls
from tests.cluster.debian import ensure_packages
from tests.cluster.engine import Engine, dismantle, own_podman, prepare, reachable
from tests.cluster.paths import BIN, CLUSTER, HERE, KUBECONFIG, LOGS, STATE
from tests.cluster.shell import ClusterError, CommandFailed, say, succeeds

RECORD = STATE / "cluster.json"


def recorded() -> Engine:
    """The engine of the cluster that is up."""
    if not RECORD.exists():
        raise ClusterError("there is no cluster: `python -m tests.cluster up` makes one")
    return Engine(**json.loads(RECORD.read_text())["engine"])


def _is_dense() -> bool:
    return json.loads(RECORD.read_text()).get("dense", False)


def build(*, only: list[str] | None = None) -> Engine:
    """Makes everything that a cluster is started from; what is there in the right version is kept."""
    missing = gobuild.missing()
    if only is not None:
        gobuild.build(names=[name for name in missing if name in only])
        return own_podman(nodeimage.tag())
    engine = reachable()
    if engine is None:
        ensure_packages()
    gobuild.build(names=missing)
    if engine is not None:
        return engine
    engine = own_podman(nodeimage.tag())
    prepare(engine)
    if not succeeds(
        engine.inside(["podman", "image", "exists", engine.node_image]), env=engine.environment()
    ):
        _build_node_image(engine)
        _remove_older_images(engine)
    return engine


def release(engine: Engine) -> None:
    """After a build without a start: takes away the engine's network namespace and mounts."""
    if not RECORD.exists():
        dismantle(engine)


def _remove_older_images(engine: Engine) -> None:
    """Node images of earlier versions, a gigabyte each; one that is in use stays."""
    repository = engine.node_image.rpartition(":")[0]
    listing = [
        "podman",
        "images",
        "--filter",
        f"reference={repository}",
        "--format",
        "{{.Repository}}:{{.Tag}}",
    ]
    for name in engine.run(listing).split():
        if name != engine.node_image:
            succeeds(engine.inside(["podman", "rmi", name]), env=engine.environment())


def _build_node_image(engine: Engine) -> None:
    for left_over in nodeimage.WORK.glob("rootfs-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    root = nodeimage.rootfs()
    work = root.with_name(f"{root.name}-images")
    try:
        say("making the node image")
        nodeimage.import_archives(root=root, images=nodeimage.archives(root=root, out=work))
        command = ["podman", "import", "--quiet"]
        for change in (
            "ENV container=podman",
            f"ENV PATH={nodeimage.PATH}",
            'ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]',
            "STOPSIGNAL SIGRTMIN+3",
        ):
            command += ["--change", change]
        with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
            done = subprocess.run(
                engine.inside([*command, "-", engine.node_image]),
                env=engine.environment(),
                stdin=tar.stdout,
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode != 0 or tar.returncode != 0:
            raise ClusterError(f"podman import: {done.stderr.strip()}")
    finally:
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(root, ignore_errors=True)


def nodes(engine: Engine) -> list[str]:
    """The names of the nodes' containers, whether they run or not."""
    label = f"label=io.x-k8s.kind.cluster={CLUSTER}"
    listing = engine.run([engine.provider, "ps", "--all", "--filter", label, "--format", "{{.Names}}"])
    return sorted(listing.split())


def kubectl(engine: Engine, *words: str | Path, stdin: str | None = None, timeout: float = 300) -> str:
    """Runs kubectl against the cluster."""
    command = [BIN / "kubectl", "--kubeconfig", KUBECONFIG, *words]
    return engine.run(command, stdin=stdin, timeout=timeout)


def is_ready(engine: Engine, *, workers: int) -> bool:
    """Whether the cluster has all its nodes, each of them Ready."""
    try:
        kubectl(engine, "wait", "node", "--all", "--for=condition=Ready", "--timeout=30s", timeout=60)
        return len(nodes(engine)) == workers + 1
    except ClusterError:
        return False


def up(*, workers: int, dense: bool = False) -> Path:
    """A cluster that is ready; the one that is there, if it is as wanted. `dense`: see `config.kind_config`."""
    if RECORD.exists() and _is_dense() == dense and is_ready(recorded(), workers=workers):
        # Its network may have been made anew since it was started: no program here reaches a pod then.
        route_pods(recorded())
        say(f"is up already: KUBECONFIG={KUBECONFIG}")
        return KUBECONFIG
    down()
    engine = build()
    prepare(engine)
    sysctls.save()
    v2 = config.cgroup_v2()
    (STATE / "runsc.toml").write_text(config.runsc_config(v2=v2, dense=dense))
    (STATE / "audit.yaml").write_text(json.dumps(config.AUDIT_POLICY))
    (STATE / "kind.yaml").write_text(json.dumps(config.kind_config(workers=workers, v2=v2, dense=dense)))
    RECORD.write_text(json.dumps({"engine": asdict(engine), "workers": workers, "dense": dense}))
    say(f"starting 1 control plane and {workers} workers from {engine.node_image}")
    create = [BIN / "kind", "create", "cluster", "--name", CLUSTER, "--config", STATE / "kind.yaml"]
    create += ["--image", engine.node_image, "--kubeconfig", KUBECONFIG, "--retain"]
    try:
        engine.run(create, timeout=900)
        KUBECONFIG.chmod(0o600)
        # kind waits for the control plane alone and exits 0 with a broken worker.
        kubectl(engine, "wait", "node", "--all", "--for=condition=Ready", "--timeout=240s")
        kubectl(engine, "apply", "-f", "-", stdin=json.dumps(config.RUNTIME_CLASS))
        if engine.netns is not None:
            # kind's own node image has a network plugin that enforces policies; ours has not.
            kubectl(engine, "apply", "-f", HERE / "node" / "network-policies.yaml")
            waiting = (
                "rollout",
                "status",
                "daemonset/kube-network-policies",
                "-n",
                "kube-system",
                "--timeout=240s",
            )
            kubectl(engine, *waiting)
        rollout = ("rollout", "status", "deployment/coredns", "-n", "kube-system", "--timeout=240s")
        kubectl(engine, *rollout)
        route_pods(engine)
        sysctls.settle()
    except ClusterError:
        logs(LOGS / "failed-up")
        raise
    say(f"is up: KUBECONFIG={KUBECONFIG}")
    return KUBECONFIG


def route_pods(engine: Engine) -> None:
    """Routes to every node's pods: for programs in the cluster's network, and at once where a node's address changed."""
    if engine.netns is None:
        return
    listing = json.loads(kubectl(engine, "get", "nodes", "-o", "json"))["items"]
    names = [node["metadata"]["name"] for node in listing]
    for node in listing:
        address = next(a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP")
        route = ("ip", "route", "replace", node["spec"]["podCIDR"], "via", address)
        engine.run(route)
        for other in names:
            if other != node["metadata"]["name"]:
                engine.on_node(other, *route)


def machine_id(engine: Engine, node: str) -> tuple[str, bool]:
    """What the API server knows of a node: the id of its machine, new at each start, and whether it is Ready."""
    status = json.loads(kubectl(engine, "get", "node", node, "-o", "json"))["status"]
    ready = any(entry["type"] == "Ready" and entry["status"] == "True" for entry in status["conditions"])
    return status["nodeInfo"]["machineID"], ready


def wait_for(condition: Callable[[], bool], *, what: str, seconds: float) -> None:
    """Waits until a condition holds; what cannot be asked yet does not hold."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except ClusterError:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.3)


def wait_for_api(engine: Engine) -> None:
    """Waits until the API server answers that it is ready."""

    def answers() -> bool:
        return kubectl(engine, "get", "--raw", "/readyz", timeout=10) == "ok"

    wait_for(answers, what="the API server is ready", seconds=240)


def down() -> None:
    """Takes the cluster away, whatever state it is in."""
    registry.stop()
    engine = recorded() if RECORD.exists() else own_podman("")
    there = RECORD.exists() or (engine.netns is not None and Path(f"/run/netns/{engine.netns}").exists())
    if there:
        if engine.netns is not None:
            prepare(engine)
        if (BIN / "kind").exists():
            try:
                engine.run([BIN / "kind", "delete", "cluster", "--name", CLUSTER, "--kubeconfig", KUBECONFIG])
            except CommandFailed as error:
                say(f"kind could not delete the cluster, taking it away by hand: {error}")
        dismantle(engine)
    sysctls.restore()
    shutil.rmtree(STATE, ignore_errors=True)


def load_image(archive: Path) -> str:
    """Brings an OCI archive to every node that has it not yet, and gives the image's name."""
    engine = recorded()
    reference, digest = archive_index(archive)
    data = None
    for node in nodes(engine):
        listed = engine.on_node(node, "ctr", "-n", "k8s.io", "images", "list", f"name=={reference}")
        if digest in listed:
            continue
        if reference in listed:
            # Of a name that it knows containerd makes no entry by the new image's id, by which pods mount it.
            engine.on_node(node, "ctr", "-n", "k8s.io", "images", "remove", "--sync", reference)
        data = archive.read_bytes() if data is None else data
        command = ("ctr", "-n", "k8s.io", "images", "import", "--local", "--discard-unpacked-layers", "-")
        engine.on_node(node, *command, stdin=data)
    return reference


def push_image(archive: Path) -> str:
    """Brings an OCI archive to the cluster's registry, and gives the name under which pods pull it."""
    (name,) = push_images(archive)
    return name


def push_images(source: Path) -> list[str]:
    """Brings all images of an archive or of a layout's directory to the registry, and gives their names there."""
    engine = recorded()
    return registry.push(engine, nodes=nodes(engine), source=source)


def registry_address() -> str:
    """The registry's host and port, as programs beside the cluster and its nodes reach it."""
    engine = recorded()
    return registry.start(engine, nodes=nodes(engine))


def logs(out: Path) -> Path:
    """Writes everything that tells what happened on the cluster into a directory."""
    engine = recorded()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    wanted = {
        "events.txt": ("get", "events", "-A", "--sort-by=.lastTimestamp"),
        "pods.txt": ("get", "pods", "-A", "-o", "wide"),
    }
    for name, words in wanted.items():
        try:
            (out / name).write_text(kubectl(engine, *words, timeout=30))
        except ClusterError as error:
            (out / name).write_text(f"{error}\n")
    try:
        engine.run([BIN / "kind", "export", "logs", "--name", CLUSTER, out / "kind"])
    except ClusterError as error:
        (out / "kind-export.txt").write_text(f"{error}\n")
    return out
