"""`make loadtest PROFILE=...`: loads a stack like a training run; exits with 1 if a bound is missed."""

from __future__ import annotations

import asyncio
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from sandlot.errors import SandlotError
from sandlot_kube.errors import KubeError

from loadtests.bounds import Bound, SpecError
from loadtests.code_env.frameworks import missing
from loadtests.interrupts import end_in_order
from loadtests.load import judge, profile_files
from loadtests.load.figures import write_figures
from loadtests.load.generators import GeneratorFailed
from loadtests.load.local_place import Local
from loadtests.load.page import write_page
from loadtests.load.places import Needs, Place, PlaceFailed
from loadtests.load.plots import plots
from loadtests.load.profile_files import Loaded, ProfileError
from loadtests.load.server import Server
from loadtests.load.tables import tables
from loadtests.load.trial import trial
from tests.cluster.shell import ClusterError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Runtime(StrEnum):
    RUNC = "runc"
    GVISOR = "gvisor"


class On(StrEnum):
    LOCAL = "local"
    CLUSTER = "cluster"
    SERVER = "server"


@app.command()
def loadtest(
    profiles: Annotated[
        list[str], typer.Argument(help="Files of loadtests/profiles, or `all`.", metavar="PROFILE...")
    ],
    on: Annotated[On, typer.Option(help="A new local stack, the chart on $KUBECONFIG, or --url.")] = On.LOCAL,
    url: Annotated[str, typer.Option(envvar="SANDLOT_URL", help="The server, with --on server.")] = "",
    api_key: Annotated[str, typer.Option(envvar="SANDLOT_API_KEY", help="Its key.")] = "",
    image: Annotated[str, typer.Option(help="The sandboxes' image, with --on server.")] = "",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the profile.")
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="The profile's short version.")] = False,
    peers: Annotated[
        bool, typer.Option("--peers", help="Also measure other systems' agents, each in a sandbox.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the arrivals.")] = 1,
    every: Annotated[
        float | None,
        typer.Option(min=0.1, help="Seconds between samples of the parts; default: 1, on a cluster 15."),
    ] = None,
    runtime: Annotated[Runtime, typer.Option(help="Of the sandboxes, with --on cluster.")] = Runtime.RUNC,
    value: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=JSON", help="A value of the chart, with --on cluster."),
    ] = None,
    reports: Annotated[Path, typer.Option(help="Folder for the reports, one subfolder per profile.")] = Path(
        "reports/load"
    ),
    spec: Annotated[Path, typer.Option(help="The bounds.")] = judge.SPEC,
) -> None:
    """Load a stack by profiles; each leaves events.jsonl, samples.jsonl, summary.json and report.html."""
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    try:
        given = _given(set_ or [])
        wanted = profile_files.names() if profiles == ["all"] else profiles
        loaded = [profile_files.load(name, short=short, given=given) for name in wanted]
        where = {on.value, runtime.value} if on is On.CLUSTER else {on.value}
        bounds = {one.name: judge.bounds_of(one.name, on=where, short=short, path=spec) for one in loaded}
        values = _values(value or [])
        needs = _needs(loaded)
        place = _place(on, url=url, api_key=api_key, image=image, runtime=runtime, values=values, needs=needs)
        loaded = _bearable(loaded, place=place, all_of_them=profiles == ["all"])
    except (ProfileError, SpecError) as error:
        console.print(str(error), style="red", markup=False)
        raise typer.Exit(2) from error
    failed: list[str] = []
    missed: list[str] = []
    end_in_order()
    try:
        missed = asyncio.run(
            _all(
                loaded,
                place=place,
                bounds=bounds,
                reports=reports,
                seed=seed,
                every=every or place.every,
                peers=peers,
                console=console,
            )
        )
    except* (SandlotError, PlaceFailed, GeneratorFailed, ClusterError, KubeError, TimeoutError) as group:
        failed = [
            f"the load test cannot go on: {str(error) or type(error).__name__}" for error in _leaves(group)
        ]
    for line in [*missed, *failed]:
        console.print(line, style="red", markup=False)
    raise typer.Exit(2 if failed else 1 if missed else 0)


async def _all(
    loaded: list[Loaded],
    *,
    place: Place,
    bounds: dict[str, dict[str, Bound]],
    reports: Path,
    seed: int,
    every: float,
    peers: bool,
    console: Console,
) -> list[str]:
    """Return a line for each missed bound."""
    missed: list[str] = []
    async with place:
        for one in loaded:
            folder = reports / one.name
            found = await trial(
                one,
                place=place,
                folder=folder,
                seed=seed,
                every=every,
                peers=peers,
                tell=lambda text, name=one.name: console.print(f"{name}: {text}", style="dim"),
            )
            rows = judge.judged(bounds[one.name], found.summary)
            found.summary["bounds"] = rows
            (folder / "summary.json").write_text(json.dumps(found.summary, indent=1) + "\n")
            write_page(folder / "report.html", found)
            write_figures(folder / "figures", plots(found))
            for table in tables(found.summary):
                console.print(table)
            for line in found.summary["lagged"]:
                console.print(f"the load generator lagged, its times are too long: {line}", style="yellow")
            console.print(
                f"written: {folder}/report.html, summary.json, events.jsonl, samples.jsonl, figures"
            )
            missed += [
                f"bound missed: {row['name']} is {row['value']}, must be {row['limit']} {row['unit']}".rstrip()
                for row in rows
                if not row["held"]
            ]
    return missed


def _given(words: list[str]) -> dict[str, str]:
    for word in words:
        if "=" not in word:
            raise ProfileError(f"--set {word}: must be NAME=VALUE")
    return _pairs(words)


def _values(words: list[str]) -> dict[str, str]:
    """Parse the chart's values; return each as it was written."""
    for word in words:
        try:
            json.loads(word.partition("=")[2])
        except ValueError as error:
            raise ProfileError(f'--value {word}: must be NAME=JSON, a string as NAME="text"') from error
    return _pairs(words)


def _pairs(words: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def _needs(loaded: list[Loaded]) -> Needs:
    phases = [phase for one in loaded for phase in one.profile.phases]
    return Needs(
        images=any(one.profile.images for one in loaded),
        checkpoints=any(phase.forks for phase in phases),
        fusion=any(phase.rollouts.by == "verl" for phase in phases if phase.rollouts),
    )


def _place(
    on: On,
    *,
    url: str,
    api_key: str,
    image: str,
    runtime: Runtime,
    values: dict[str, str],
    needs: Needs,
) -> Place:
    if on is On.CLUSTER:
        # Importing the Kubernetes client takes half a second, and no other place needs it.
        from loadtests.load.cluster import Cluster

        return Cluster(runtime=runtime.value, values=values, needs=needs)
    if values:
        raise ProfileError("--value: only with --on cluster, where a chart is installed")
    if on is On.LOCAL:
        return Local(needs)
    if not url or not api_key:
        raise ProfileError("--on server: needs --url and --api-key, or SANDLOT_URL and SANDLOT_API_KEY")
    return Server(url=url, api_key=api_key, image=image or None)


def _bearable(loaded: list[Loaded], *, place: Place, all_of_them: bool) -> list[Loaded]:
    """Return the profiles that may run there: a foreign place gets no faults and no images. Raises ProfileError."""
    why: dict[str, str] = {}
    for one in loaded:
        if not place.breakable and any(phase.breaks for phase in one.profile.phases):
            why[one.name] = "it kills or attacks parts"
        elif not place.has_images and one.profile.images is not None:
            why[one.name] = "it needs slots and images that the load test provides"
        elif all_of_them and (gap := missing(one.profile)):
            why[one.name] = gap
    for name, reason in why.items():
        if not all_of_them:
            raise ProfileError(f"{name}: {reason}: only on a stack or a cluster of its own")
    return [one for one in loaded if one.name not in why]


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


if __name__ == "__main__":
    app()
