"""Command line of the test cluster: `python -m tests.cluster up|down|status|build|load-image|push|run|logs|kill|heal`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from images.rootfs import ImageError
from tests.cluster import cluster, faults
from tests.cluster.lock import exclusive
from tests.cluster.paths import KUBECONFIG, LOGS
from tests.cluster.shell import ClusterError


def parser() -> argparse.ArgumentParser:
    """The commands and their arguments."""
    top = argparse.ArgumentParser(
        prog="python -m tests.cluster", description="a kind cluster with gVisor for the tests"
    )
    commands = top.add_subparsers(dest="command", required=True)
    up = commands.add_parser(
        "up", help="start the cluster, building what is missing; prints its kubeconfig's path"
    )
    up.add_argument("--workers", type=int, default=2, choices=range(1, 6), metavar="1..5")
    up.add_argument(
        "--dense",
        action="store_true",
        help="nodes for hundreds of idle sandboxes: a gVisor shim for a pod, a kubelet that looks once a minute",
    )
    commands.add_parser("down", help="take everything away but the cache")
    commands.add_parser("status", help="nodes and pods; exit code 1 when the cluster is not ready")
    build = commands.add_parser("build", help="build the programs and the node image")
    build.add_argument("--only", nargs="+", metavar="PROGRAM", help="these programs and no node image")
    load = commands.add_parser("load-image", help="bring OCI archives to every node")
    load.add_argument("archives", nargs="+", type=Path, metavar="ARCHIVE")
    push = commands.add_parser(
        "push", help="bring OCI archives to the cluster's registry; prints the names to pull"
    )
    push.add_argument("archives", nargs="+", type=Path, metavar="ARCHIVE")
    run = commands.add_parser("run", help="run a command that reaches the cluster: kubectl, helm, a test")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    logs = commands.add_parser("logs", help="collect events and logs of the nodes")
    logs.add_argument("--out", type=Path, default=LOGS / "collected")
    for name, text in (("kill", "end a component"), ("heal", "bring a component back")):
        fault = commands.add_parser(name, help=text)
        fault.add_argument("component", choices=faults.COMPONENTS)
        fault.add_argument("target", nargs="?", help=faults.TARGETS)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command."""
    arguments = parser().parse_args(argv)
    try:
        return run(arguments)
    except (ClusterError, ImageError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1


def run(arguments: argparse.Namespace) -> int:
    """Does what the arguments say, and gives the exit code."""
    match arguments.command:
        case "up":
            with exclusive():
                print(cluster.up(workers=arguments.workers, dense=arguments.dense))
        case "down":
            with exclusive():
                cluster.down()
        case "status":
            engine = cluster.recorded()
            print(cluster.kubectl(engine, "get", "nodes,pods", "-A", "-o", "wide"), end="")
            return 0 if cluster.is_ready(engine, workers=len(cluster.nodes(engine)) - 1) else 1
        case "build":
            with exclusive():
                cluster.release(cluster.build(only=arguments.only))
        case "load-image":
            for archive in arguments.archives:
                print(cluster.load_image(archive))
        case "push":
            for archive in arguments.archives:
                print(cluster.push_image(archive))
        case "run":
            return enter(arguments.words)
        case "logs":
            print(cluster.logs(arguments.out))
        case "kill":
            faults.kill(component=arguments.component, target=arguments.target)
        case "heal":
            faults.heal(component=arguments.component, target=arguments.target)
    return 0


def enter(words: list[str]) -> int:
    """Becomes the command, in the cluster's network, with its kubeconfig and programs."""
    words = words[1:] if words[:1] == ["--"] else words
    if not words:
        raise ClusterError("run: no command given")
    engine = cluster.recorded()
    environment = {**engine.environment(), "KUBECONFIG": str(KUBECONFIG)}
    command = engine.inside(words)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise ClusterError(f"{command[0]}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
