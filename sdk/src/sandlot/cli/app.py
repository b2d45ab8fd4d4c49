"""Puts the commands together and turns every failure into one line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, cast

import typer

from sandlot.cli import bench, copy, doctor, local, output, pools, sandboxes, shell, top
from sandlot.errors import SandlotError

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
    """The application; grading and its imports are added only when asked for, or for the help."""
    for module in (local, sandboxes, shell, copy, pools, top, bench, doctor):
        module.register(app)
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    if command in ("", "grade", "demo"):
        from sandlot.grade.command import register

        register(app)
    return app


def run(arguments: Sequence[str]) -> int:
    """Runs one command line; returns its exit code."""
    try:
        result: object = build(arguments)(list(arguments), prog_name="sandlot", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    except SandlotError as error:
        print(f"sandlot: {_line(error)}", file=sys.stderr)
        return output.failure_code(error)
    except (ValueError, OSError) as error:
        print(f"sandlot: {_line(error)}", file=sys.stderr)
        return output.FAILED
    except typer.Abort:
        return 130
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        usage = cast(typer.TyperException, error)
        message = usage.format_message()
        if message:
            print(f"sandlot: {message}", file=sys.stderr)
        return usage.exit_code


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
