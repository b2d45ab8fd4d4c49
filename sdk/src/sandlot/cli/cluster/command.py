"""`sandlot doctor --cluster`: reads the cluster through kubectl and reports what is wrong with an installation."""

from __future__ import annotations

import json as json_module
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

from sandlot.cli import output

from . import checks, kubectl, reading, report
from .api import Api
from .deadline import NEVER, Deadline
from .kubectl import CannotRun, Kubectl
from .options import Options

CANNOT_RUN = 2


@contextmanager
def connected(options: Options, deadline: Deadline) -> Generator[tuple[Kubectl, Api]]:
    """Find kubectl and run its proxy until the block ends. Raises CannotRun."""
    tool = kubectl.find(kubeconfig=options.kubeconfig, context=options.context, deadline=deadline)
    with tool.proxy() as (socket, errors):
        yield tool, Api(socket, errors, deadline)


def api_key() -> str | None:
    """Return the key for the gateways' metrics."""
    return output.connection.api_key or os.environ.get("SANDLOT_API_KEY")


def check(options: Options, *, json: bool) -> int:
    """Print the report; return 0 if all is well, 1 if there are problems, 2 if the cluster cannot be reached."""
    try:
        with connected(options, NEVER) as (tool, api):
            world = reading.read(
                tool, api, namespace=options.namespace, name=options.release, api_key=api_key()
            )
    except CannotRun as error:
        print(f"sandlot: {output.one_line(error)}", file=sys.stderr)
        return CANNOT_RUN
    found = list(checks.findings(world))
    if json:
        print(json_module.dumps(report.document(world, found), ensure_ascii=False))
    else:
        for line in report.lines(world, found):
            print(line)
    return report.code(found)
