"""Runs one gateway process: `python -m sandlot_gateway`."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
from typing import Any

import uvloop
from pydantic import ValidationError

from sandlot_gateway import logs
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.keys import BadKeys
from sandlot_gateway.settings import Settings

_log = logging.getLogger("sandlot_gateway")


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
        if field.annotation is bool:
            parser.add_argument(option, action="store_true", help=help_text)
        elif name == "pool":
            parser.add_argument(option, action="append", metavar="POOL", help=help_text)
        else:
            parser.add_argument(option, metavar=name.upper(), help=help_text)
    return vars(parser.parse_args(argv))


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
    from sandlot_gateway.serve import serve

    try:
        return uvloop.run(serve(settings))
    except (BackendError, BadKeys, OSError) as error:
        print(f"sandlot: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


if __name__ == "__main__":
    sys.exit(main())
