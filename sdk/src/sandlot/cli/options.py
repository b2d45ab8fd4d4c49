"""Arguments and options that the commands on sandboxes share."""

from __future__ import annotations

from typing import Annotated

import typer

Command = Annotated[
    list[str],
    typer.Argument(metavar="CMD", help="One word: a line for the shell; more: a program and its arguments."),
]
Env = Annotated[
    list[str] | None, typer.Option("--env", "-e", metavar="NAME[=VALUE]", help="Environment variable.")
]
Secret = Annotated[
    list[str] | None, typer.Option(metavar="NAME[=VALUE]", help="Like --env, but never shown.")
]
SecretRef = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SECRET/KEY", help="A variable that the server reads from its operator's secret."
    ),
]
Timeout = Annotated[float | None, typer.Option(help="Seconds the command may run.")]
Cwd = Annotated[str | None, typer.Option("--cwd", "-w", help="Working directory of the command.")]
User = Annotated[str | None, typer.Option("--user", "-u", help="User name or id in the sandbox.")]
Shell = Annotated[
    str | None,
    typer.Option(
        help="For a command of one word: `sh`, `bash` or a path. Default: bash if the image has it, else sh."
    ),
]
Interactive = Annotated[bool, typer.Option("--stdin", "-i", help="Pass standard input to the command.")]
