"""The tools for files: read, write and list them, make directories, remove and move."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from sandlot._async.files import AsyncFiles
from sandlot._protocol import documents
from sandlot.integrations.mcp.ops import decode_part
from sandlot.integrations.mcp.schema import arguments as takes
from sandlot.integrations.mcp.schema import flag, integer, out, result, text
from sandlot.integrations.mcp.session import Session
from sandlot.integrations.mcp.tool import MOST_TEXT, MOST_WRITE, PATH, SANDBOX, TEXT, Arguments, Tool

_LISTED = 200


async def _read_file(session: Session, given: Arguments) -> dict[str, Any]:
    files, path = _files(session, given), given["path"]
    offset, most = int(given.get("offset", 0)), int(given.get("max_bytes", TEXT))
    encoding = given.get("encoding", "utf-8")
    told = (await files.stat(path)).size
    data = await files.read(path, offset=offset, length=most)
    # Files of /proc say 0, and others grow meanwhile.
    size = max(told, offset + len(data)) if data else told
    more = offset + len(data) < size or (told == 0 and len(data) == most)
    if encoding == "base64":
        content, after = base64.b64encode(data).decode(), offset + len(data)
    else:
        part = decode_part(data, offset=offset, final=not more)
        content, after = part.text, part.next
    return {
        "path": path,
        "content": content,
        "encoding": encoding,
        "size": size,
        "next_offset": after,
        "truncated": more and bool(data),
    }


async def _write_file(session: Session, given: Arguments) -> dict[str, Any]:
    path, content = given["path"], given["content"]
    try:
        data = (
            base64.b64decode(content, validate=True)
            if given.get("encoding") == "base64"
            else content.encode()
        )
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"content: is not base64: {error}") from None
    if len(data) > MOST_WRITE:
        raise ValueError(
            f"content: must have at most {MOST_WRITE} bytes, not {len(data)}: write it with exec"
        )
    mode = 0o755 if given.get("executable") else None
    return {"path": path, "size": await _files(session, given).write(path, data, mode=mode)}


async def _list_files(session: Session, given: Arguments) -> dict[str, Any]:
    path = given.get("path", ".")
    query = {"path": path, "limit": int(given.get("limit", _LISTED)), "cursor": given.get("cursor")}
    page = await session.plane(given["sandbox_id"]).call("GET", "/files/list", query=query, path=path)
    entries = [documents.file_info(entry) for entry in page.get("entries") or ()]
    return {
        "entries": [
            {
                "name": entry.name,
                "type": entry.type,
                "size": entry.size,
                "mode": entry.mode,
                "modified": entry.mtime,
                "target": entry.target,
            }
            for entry in entries
        ],
        "cursor": page.get("cursor") or None,
    }


async def _make_directory(session: Session, given: Arguments) -> dict[str, Any]:
    await _files(session, given).mkdir(given["path"])
    return {"path": given["path"]}


async def _remove_path(session: Session, given: Arguments) -> dict[str, Any]:
    await _files(session, given).remove(given["path"], recursive=bool(given.get("recursive")))
    return {"path": given["path"]}


async def _move_path(session: Session, given: Arguments) -> dict[str, Any]:
    overwrite = bool(given.get("overwrite"))
    await _files(session, given).move(given["source"], given["target"], overwrite=overwrite)
    return {"path": given["target"]}


def _files(session: Session, given: Arguments) -> AsyncFiles:
    return AsyncFiles(plane=session.plane(given["sandbox_id"]))


TOOLS = (
    Tool(
        name="read_file",
        title="Read a file",
        description=(
            f"Read a file, or a part of it: at most max_bytes (default {TEXT}, at most {MOST_TEXT}) from offset on. "
            "`truncated` says whether more follows, next_offset where. Use encoding=base64 for what is not text."
        ),
        takes=takes(
            ("sandbox_id", "path"),
            sandbox_id=SANDBOX,
            path=PATH,
            offset=integer("The first byte. Default: 0.", least=0, most=1 << 53),
            max_bytes=integer(f"Default: {TEXT}.", least=1, most=MOST_TEXT),
            encoding=text("Default: utf-8.", choices=("utf-8", "base64")),
        ),
        gives=result(
            (),
            path=out("string", "As in the call."),
            content=out("string", "The text, or base64."),
            encoding=out("string", "utf-8 or base64."),
            size=out("integer", "Bytes of the whole file."),
            next_offset=out("integer", "Where the next read begins."),
            truncated=out("boolean", "Whether the file has more after this part."),
        ),
        reads=True,
        run=_read_file,
    ),
    Tool(
        name="write_file",
        title="Write a file",
        description=(
            "Replace a file's content, or create it with its directories; the change is atomic. At most 1 MiB in one call: "
            "write larger files in the sandbox, with exec."
        ),
        takes=takes(
            ("sandbox_id", "path", "content"),
            sandbox_id=SANDBOX,
            path=PATH,
            content=text("The whole new content.", longest=MOST_WRITE * 4 // 3 + 4),
            encoding=text("Of the content. Default: utf-8.", choices=("utf-8", "base64")),
            executable=flag("Whether to make it executable. Default: false."),
        ),
        gives=result((), path=out("string", "As in the call."), size=out("integer", "Bytes of the file.")),
        destroys=True,
        repeatable=True,
        run=_write_file,
    ),
    Tool(
        name="list_files",
        title="List a directory",
        description="List the entries of one directory, sorted by name, at most `limit` in one call; pass cursor to continue.",
        takes=takes(
            ("sandbox_id",),
            sandbox_id=SANDBOX,
            path=text("The directory. Default: the working directory."),
            limit=integer("Default: 200.", least=1, most=1000),
            cursor=text("The cursor of the last call.", longest=8192),
        ),
        gives=result(
            (),
            entries={
                "type": "array",
                "items": result(
                    (),
                    name=out("string", "Its name."),
                    type=out("string", "file, dir, symlink or other."),
                    size=out("integer", "Bytes."),
                    mode=out("string", "Octal."),
                    modified=out("number", "Unix seconds."),
                    target=out(["string", "null"], "Where a symlink points."),
                ),
            },
            cursor=out(["string", "null"], "For the next call; null: this was the last entry."),
        ),
        reads=True,
        run=_list_files,
    ),
    Tool(
        name="make_directory",
        title="Make a directory",
        description="Make a directory, and those above it. One that exists already is a success.",
        takes=takes(("sandbox_id", "path"), sandbox_id=SANDBOX, path=PATH),
        gives=result((), path=out("string", "As in the call.")),
        repeatable=True,
        run=_make_directory,
    ),
    Tool(
        name="remove_path",
        title="Remove a file or directory",
        description="Remove a file or an empty directory; with recursive=true also all below it.",
        takes=takes(
            ("sandbox_id", "path"),
            sandbox_id=SANDBOX,
            path=PATH,
            recursive=flag("Default: false."),
        ),
        gives=result((), path=out("string", "As in the call.")),
        destroys=True,
        run=_remove_path,
    ),
    Tool(
        name="move_path",
        title="Move a file or directory",
        description="Rename or move a file or directory; a file that has the new name is replaced only with overwrite=true.",
        takes=takes(
            ("sandbox_id", "source", "target"),
            sandbox_id=SANDBOX,
            source=PATH,
            target=PATH,
            overwrite=flag("Default: false."),
        ),
        gives=result((), path=out("string", "The new path.")),
        destroys=True,
        run=_move_path,
    ),
)
