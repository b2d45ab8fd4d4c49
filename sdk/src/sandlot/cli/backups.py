"""backup and restore: keep what must last of an installation on Kubernetes in one file, and bring it back."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sandlot.cli import output
from sandlot.cli.cluster.options import Context, Kubeconfig, Namespace, Options, ReleaseName

if TYPE_CHECKING:
    from sandlot.cli.cluster.backup.restoring import Outcome


def register(app: typer.Typer) -> None:
    app.command()(backup)
    app.command()(restore)


def backup(
    file: Annotated[
        Path, typer.Argument(help="The file to write, such as sandlot.tar.gz; it must not exist.")
    ],
    with_secrets: Annotated[
        bool,
        typer.Option(
            "--with-secrets",
            help="Include the Secrets that the release uses. Whoever reads the file then has its keys: store it encrypted.",
        ),
    ] = False,
    namespace: Namespace = None,
    release: ReleaseName = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    json: output.Json = False,
) -> int:
    """Write pools, usage, leases of runs, warm-ups and Helm's values of an installation on Kubernetes into one file."""
    from sandlot.cli.cluster import command
    from sandlot.cli.cluster.backup import archive, collecting
    from sandlot.cli.cluster.backup.items import BadBackup
    from sandlot.cli.cluster.bundle import created
    from sandlot.cli.cluster.deadline import NEVER
    from sandlot.cli.cluster.kubectl import CannotRun

    options = Options(namespace, release, context, kubeconfig)
    try:
        with created(file) as stream, command.connected(options, NEVER) as (_, api):
            made = collecting.collect(api, namespace=namespace, name=release, with_secrets=with_secrets)
            archive.write(stream, made)
            if archive.read(file).items != tuple(sorted(made.items, key=archive.order)):
                raise BadBackup(f"{file} does not read back as it was written: check its disk")
    except CannotRun as error:
        print(f"sandlot: {output.one_line(error)}", file=sys.stderr)
        return command.CANNOT_RUN
    if made.values is None:
        print("Helm has no record of the release: keep its values yourself", file=sys.stderr)
    elif made.status != "deployed":
        print(
            f"values are of Helm's newest revision, which is {made.status}: check values.json",
            file=sys.stderr,
        )
    if made.lacking:
        print(f"not included: Secrets {', '.join(made.lacking)}", file=sys.stderr)
    document = {
        "file": str(file),
        "release": made.release.name,
        "chart": made.chart,
        "helm_status": made.status,
        "values": made.values is not None,
        "counts": made.counts,
        "secrets_not_included": list(made.lacking),
    }
    output.show(document, json=json, text=f"{file}: {archive.summary(made.counts)}")
    return 0


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `sandlot backup` wrote.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be created and changed; store nothing.")
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace what exists with other content, which may be newer; Secrets only with --only-secrets.",
        ),
    ] = False,
    only_secrets: Annotated[
        bool,
        typer.Option(
            "--only-secrets",
            help="Only the Secrets. Before the chart is installed it needs --namespace, and fills that one.",
        ),
    ] = False,
    namespace: Namespace = None,
    release: ReleaseName = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    json: output.Json = False,
) -> int:
    """Create what a backup has and the installation lacks; repeat it as often as you like."""
    from sandlot.cli.cluster import command
    from sandlot.cli.cluster.backup import archive, restoring
    from sandlot.cli.cluster.deadline import NEVER
    from sandlot.cli.cluster.kubectl import CannotRun

    read = archive.read(file)
    if only_secrets and not read.with_secrets:
        raise ValueError(f"{file} has no Secrets: name a backup that was made with --with-secrets")
    options = Options(namespace, release, context, kubeconfig)
    try:
        with command.connected(options, NEVER) as (tool, api):
            installed = restoring.has_release(api, read.release, options, only_secrets=only_secrets)
            output.note(f"backup of {read.created}, into the context {tool.context}")
            outcomes = restoring.restore(
                api,
                read.items,
                release=read.release,
                installed=installed,
                overwrite=overwrite,
                dry_run=dry_run,
                only_secrets=only_secrets,
            )
            done = told(outcomes, dry_run=dry_run, json=json)
    except CannotRun as error:
        print(f"sandlot: {output.one_line(error)}", file=sys.stderr)
        return command.CANNOT_RUN
    incomplete = (restoring.Did.KEPT, restoring.Did.FAILED)
    return output.FAILED if any(one.did in incomplete for one in done) else 0


def told(outcomes: Iterable[Outcome], *, dry_run: bool, json: bool) -> list[Outcome]:
    """Print each outcome when it is there, or all as JSON; an interrupted restore says what it did, too."""
    done: list[Outcome] = []
    try:
        for one in outcomes:
            done.append(one)
            if not json:
                said = f"{one.did}{' (dry run)' * dry_run}  {one.item.label}"
                print(f"{said}: {one.detail}" if one.detail else said, flush=True)
    finally:
        if json:
            rows = [{"resource": one.item.label, "did": one.did, "detail": one.detail} for one in done]
            output.show({"dry_run": dry_run, "resources": rows}, json=True, text="")
    return done
