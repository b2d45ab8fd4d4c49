"""support-bundle: writes what a maintainer needs to see of an installation into one file."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from sandlot.cli import output
from sandlot.cli.cluster.options import Context, Kubeconfig, Namespace, Options, ReleaseName


def register(app: typer.Typer) -> None:
    app.command("support-bundle")(support_bundle)


def support_bundle(
    out: Annotated[
        Path | None, typer.Option(help="The file; default: sandlot-RELEASE-TIME.tar.gz in this directory.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds after which nothing more is read.")] = 120.0,
    namespace: Namespace = None,
    release: ReleaseName = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    json: output.Json = False,
) -> int:
    """Write logs, resources, metrics and the doctor's report of an installation on Kubernetes, without secrets."""
    from sandlot.cli.cluster import bundle, checks, command, reading
    from sandlot.cli.cluster.deadline import Deadline
    from sandlot.cli.cluster.kubectl import CannotRun

    deadline = Deadline.after(timeout)
    options = Options(namespace, release, context, kubeconfig)
    try:
        with command.connected(options, deadline) as (kubectl, api):
            world = reading.read(kubectl, api, namespace=namespace, name=release, api_key=command.api_key())
            root = f"sandlot-{world.release.name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(world.now))}"
            path = out or Path(f"{root}.tar.gz")
            with bundle.created(path) as file:
                lacking = bundle.write(
                    file,
                    root=root,
                    kubectl=kubectl,
                    api=api,
                    world=world,
                    findings=list(checks.findings(world)),
                )
    except CannotRun as error:
        print(f"sandlot: {output.one_line(error)}", file=sys.stderr)
        return command.CANNOT_RUN
    if lacking:
        print(f"{len(lacking)} files are not included; not-included.txt says why", file=sys.stderr)
    output.show({"file": str(path), "not_included": lacking}, json=json, text=str(path))
    return 0
