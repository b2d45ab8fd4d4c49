"""Runs one gateway process: `python -m sandlot_gateway`."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import threading
from typing import Any

import uvloop
from pydantic import ValidationError

from sandlot_gateway import logs
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.events.webhooks.targets import BadTargets
from sandlot_gateway.followed_file import BadContent
from sandlot_gateway.keys import BadKeys
from sandlot_gateway.settings import Settings

_FOR_THREADS = 2.0  # seconds after the stop


def arguments(argv: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line; return the given options by the settings' names."""
    parser = argparse.ArgumentParser(
        prog="python -m sandlot_gateway",
        description="Serve sandboxes. Each option can also be set in the environment: --foo-bar as SANDLOT_FOO_BAR.",
        argument_default=argparse.SUPPRESS,
    )
    for name, field in Settings.model_fields.items():
        option = "--" + name.replace("_", "-")
        help_text = (field.description or "").replace("%", "%%")
        if field.annotation is bool and field.default:
            parser.add_argument(option, action=argparse.BooleanOptionalAction, help=help_text)
        elif field.annotation is bool:
            parser.add_argument(option, action="store_true", help=help_text)
        elif name == "pool":
            parser.add_argument(option, action="append", metavar="POOL", help=help_text)
        else:
            parser.add_argument(option, metavar=name.upper(), help=help_text)
    return vars(parser.parse_args(argv))


async def _served(settings: Settings) -> int:
    """Serve, then end the process, whatever its threads still do."""
    from sandlot_gateway.serve import serve

    status = await serve(settings)
    # Python joins threads of executors at its end, and one may wait for DNS or a file system that never answers.
    end = threading.Timer(_FOR_THREADS, os._exit, [status])
    end.daemon = True
    end.start()
    return status


def main() -> int:
    given = arguments()
    try:
        settings = Settings(**given)
    except ValidationError as error:
        for item in error.errors():
            name = str(item["loc"][0]) if item["loc"] else "settings"
            print(f"sandlot: --{name.replace('_', '-')}: {item['msg']}", file=sys.stderr)
        return 2
    logs.configure(settings.log_level)
    # Imports leave no garbage: collections during them took an eighth of the start. `serve` enables them again.
    gc.disable()
    try:
        return uvloop.run(_served(settings))
    except (BackendError, BadKeys, BadContent, BadTargets, OSError) as error:
        print(f"sandlot: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


if __name__ == "__main__":
    sys.exit(main())
