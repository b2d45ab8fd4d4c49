"""What a tool is, for both transports, and what the tools share: limits, and the instructions for language models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sandlot.integrations.mcp.schema import Schema, text
from sandlot.integrations.mcp.session import Session

TEXT = 64 << 10  # bytes of one text in a result by default
MOST_TEXT = 256 << 10  # bytes at most
MOST_WRITE = 1 << 20  # bytes of a file or of input in one call
LONGEST_CALL = 600.0  # seconds
LONGEST = 7 * 86400.0  # seconds of a sandbox or a command

INSTRUCTIONS = """\
Sandlot runs untrusted code in isolated Linux sandboxes. Create one with create_sandbox, run commands in it with exec \
(or start_command, read_output and write_stdin for long or interactive ones), move data with read_file and write_file, \
and delete it with delete_sandbox when you are done.

A command that fails is a normal result: look at `verdict` and `exit_code`. Verdicts: exited (it ended by itself; \
exit_code says how), signaled (a signal ended it), timeout (it reached timeout_seconds), oom (too little memory), \
disk_full, pids_limit (too many processes), killed (by kill_command).

A tool error is never the result of your code. If it begins with sandbox_lost, the infrastructure lost the sandbox with \
its files: create another one and repeat the work. If it begins with sandbox_ended, the sandbox reached a timeout or \
was deleted."""

Arguments = Mapping[str, Any]  # checked against the tool's schema
Run = Callable[[Session, Arguments], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool; `reads` if it changes nothing, `destroys` if it may delete or overwrite."""

    name: str
    title: str
    description: str
    takes: Schema
    gives: Schema
    run: Run
    reads: bool = False
    destroys: bool = False
    repeatable: bool = False  # a second equal call changes nothing

    @property
    def document(self) -> dict[str, Any]:
        """Return the tool as `tools/list` shows it."""
        hints = {
            "readOnlyHint": self.reads,
            "destructiveHint": self.destroys,
            "idempotentHint": self.reads or self.repeatable,
            "openWorldHint": False,
        }
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.takes,
            "outputSchema": self.gives,
            "annotations": hints,
        }


SANDBOX = text("The id that create_sandbox returned.", longest=128, minLength=1)
PATH = text("A path in the sandbox; a relative one starts at the working directory.")
