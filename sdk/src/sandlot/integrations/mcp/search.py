"""The tool that searches files, by the grep or find of the sandbox's image."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from sandlot._protocol import calls
from sandlot._tasks_async import ABANDONED, shielded
from sandlot.errors import Conflict
from sandlot.integrations.mcp.ops import Document, read_part, state_fields
from sandlot.integrations.mcp.schema import arguments as takes
from sandlot.integrations.mcp.schema import flag, integer, out, result, text
from sandlot.integrations.mcp.session import Session
from sandlot.integrations.mcp.tool import SANDBOX, Arguments, Tool

_SECONDS = 30.0
_READ = 256 << 10  # bytes of the program's output that are looked at: meanwhile a gateway answers nobody else
_LINE = 400  # characters
_PATH = 4200  # characters of a path with the line's number
_MATCHES = 100
_FOUND = re.compile(r"(.*?):(\d{1,18}):(.*)", re.DOTALL)
_MISSING = 127


async def _search_files(session: Session, given: Arguments) -> dict[str, Any]:
    limit, by_name = int(given.get("limit", _MATCHES)), given.get("by") == "name"
    plane, op = session.plane(given["sandbox_id"]), calls.new_id()
    document = calls.op_document(
        op_id=op,
        command=_command(given, by_name=by_name),
        cwd=None,
        env=None,
        timeout=_SECONDS,
        user=None,
        shell=None,
        stdin=False,
        pty=None,
        detach=True,
    )
    try:
        state: Document = await plane.call(
            "POST", "/ops", body={**document, "output_limit": 2 * _READ}, query={"wait": 5}, timeout=60.0
        )
        while state.get("state") != "ended":
            state = await plane.call("GET", f"/ops/{op}", query={"wait": 25}, timeout=60.0)
    except ABANDONED:
        await shielded(lambda: plane.kill(op))
        raise
    end = state_fields(state, sandbox_id=given["sandbox_id"])
    program = "find" if by_name else "grep"
    if end["verdict"] == "exited" and end["exit_code"] == _MISSING:
        raise Conflict(
            f"the sandbox's image has no {program}: search with exec", status=409, code="no_program"
        )
    stdout = await read_part(plane, op, "stdout", offset=0, most=_READ, final=True)
    stderr = await read_part(plane, op, "stderr", offset=0, most=4096, final=True)
    lines = stdout.text.split("\n")
    whole = int(state.get("stdout_bytes") or 0) <= stdout.next
    if not whole and len(lines[-1]) < _PATH + _LINE:
        lines.pop()  # cut
    matches = (match for line in lines if (match := _match(line, by_name=by_name)) is not None)
    found = list(islice(matches, limit + 1))
    warning = "" if end["verdict"] == "exited" else f"the search ended early: {end['verdict']}\n"
    return {
        "matches": found[:limit],
        "truncated": len(found) > limit or not whole or end["verdict"] != "exited",
        "warnings": warning + stderr.text,
    }


def _command(given: Arguments, *, by_name: bool) -> list[str]:
    """Return a list of words, so that no shell reads the pattern; options that busybox has, too."""
    path, ignore = given.get("path", "."), bool(given.get("ignore_case"))
    path = f"./{path}" if path.startswith("-") else path
    if by_name:
        return ["find", path, "-iname" if ignore else "-name", given["pattern"]]
    return ["grep", "-rnHE", *(["-i"] if ignore else []), "-e", given["pattern"], path]


def _match(line: str, *, by_name: bool) -> dict[str, Any] | None:
    if by_name:
        return {"path": line[:4096]} if line else None
    found = _FOUND.fullmatch(line)
    if found is None:  # that a binary file matches, say
        return None
    return {"path": found[1][:4096], "line": int(found[2]), "text": found[3][:_LINE]}


TOOLS = (
    Tool(
        name="search_files",
        title="Search files",
        description=(
            "Search below a directory: by content (lines that match an extended regular expression, with their numbers) "
            "or by name (a pattern such as *.py). At most `limit` matches, `truncated` says whether there are more. It runs the image's grep "
            "or find for 30 s at most."
        ),
        takes=takes(
            ("sandbox_id", "pattern"),
            sandbox_id=SANDBOX,
            pattern=text(
                "A regular expression of grep -E, or with by=name a pattern of find -name.",
                longest=1024,
                minLength=1,
            ),
            path=text("Where to search. Default: the working directory."),
            by=text("Default: content.", choices=("content", "name")),
            ignore_case=flag("Default: false."),
            limit=integer("Default: 100.", least=1, most=1000),
        ),
        gives=result(
            (),
            matches={
                "type": "array",
                "items": result(
                    ("line", "text"),
                    path=out("string", "The file."),
                    line=out("integer", "The line's number, from 1."),
                    text=out("string", "The line, at most 400 characters."),
                ),
            },
            truncated=out("boolean", "Whether there are more matches, or the search was cut."),
            warnings=out("string", "What could not be searched."),
        ),
        reads=True,
        run=_search_files,
    ),
)
