"""Options that choose an installation on Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

Namespace = Annotated[
    str | None, typer.Option(help="The namespace of gateway and controller; default: it is looked for.")
]
ReleaseName = Annotated[str | None, typer.Option(help="Helm's name of the release, if there are several.")]
Context = Annotated[str | None, typer.Option(help="kubectl's context; default: the current one.")]
Kubeconfig = Annotated[str | None, typer.Option(help="kubectl's configuration; default: KUBECONFIG.")]


@dataclass(frozen=True, slots=True)
class Options:
    """Which installation; None: the only one."""

    namespace: str | None = None
    release: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
