"""Builds the application from its commands and turns every failure into one line and an exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from types import FrameType
from typing import Annotated, cast

import typer

from sandlot.cli import (
    backups,
    bench,
    builds,
    commands,
    copy,
    doctor,
    events,
    images,
    local,
    mcp,
    output,
    pools,
    runs,
    sandboxes,
    shell,
    support,
    top,
    usage,
    watch,
)
from sandlot.errors import BadRequest, SandlotError

app = typer.Typer(
    help="Run untrusted code in sandboxes: on this machine, or on the server that SANDLOT_URL names.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def options(
    url: Annotated[
        str | None, typer.Option(help="The server; default: SANDLOT_URL, else a local stack.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(help="The API key; default: SANDLOT_API_KEY.")] = None,
) -> None:
    output.connection.url = url
    output.connection.api_key = api_key


@app.command()
def version(json: output.Json = False) -> None:
    """Show the version."""
    from sandlot._version import __version__

    output.show({"version": __version__}, json=json, text=f"sandlot {__version__}")


def build(arguments: Sequence[str]) -> typer.Typer:
    """Build the application. Commands of other packages are added only when called, or for the help."""
    for module in (
        local,
        commands,
        sandboxes,
        shell,
        copy,
        watch,
        events,
        builds,
        pools,
        runs,
        images,
        top,
        usage,
        bench,
        doctor,
        mcp,
        support,
        backups,
    ):
        module.register(app)
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    # Listing installed packages takes milliseconds, which the SDK's own commands do not need to spend.
    if command not in _own(app):
        for register in {point.load() for point in entry_points(group="sandlot.commands")}:
            register(app)
    return app


def _own(app: typer.Typer) -> set[str | None]:
    commands = {one.name or (one.callback and one.callback.__name__) for one in app.registered_commands}
    return commands | {one.name for one in app.registered_groups if isinstance(one.name, str)}


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        result: object = build(arguments)(list(arguments), prog_name="sandlot", standalone_mode=False)
        code = result if isinstance(result, int) else 0
        return 128 + _received[0] if _received else code
    except (KeyboardInterrupt, typer.Abort):
        return 128 + (_received[0] if _received else signal.SIGINT)
    except BrokenPipeError:
        return 141
    except (ValueError, BadRequest) as error:
        print(f"sandlot: {output.one_line(error)}", file=sys.stderr)
        return output.USAGE
    except SandlotError as error:
        print(f"sandlot: {output.one_line(error)}", file=sys.stderr)
        return output.failure_code(error)
    except OSError as error:
        print(f"sandlot: {output.one_line(error)}", file=sys.stderr)
        return output.FAILED
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        usage = cast(typer.TyperException, error)
        message = usage.format_message()
        if type(error).__name__ == "NoArgsIsHelpError":
            print(message)
        elif message:
            print(f"sandlot: {message}", file=sys.stderr)
        return usage.exit_code


_received: list[int] = []


def _terminated(number: int, frame: FrameType | None) -> None:
    """End as cleanly as on Ctrl-C, so that the command and its sandbox end too."""
    _received.append(number)
    raise KeyboardInterrupt
