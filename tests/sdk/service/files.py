"""The files of all sandboxes, which share one directory."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.sdk.service.answers import raw
from tests.sdk.service.requests import Answer, Call
from tests.sdk.service.state import State


class Files:
    def __init__(self, state: State) -> None:
        self._state = state

    def handle(self, call: Call, action: str) -> Answer:
        method, query = call.method, call.query
        document = call.document if action in ("mkdir", "move", "chmod") else {}
        path = self._inside(query.get("path") or document.get("path") or document.get("source"))
        if action == "" and method == "PUT":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(call.body)
            path.chmod(int(query.get("mode", "0644"), 8))
            return 200, {"path": str(path), "size": len(call.body)}, {}
        if action == "mkdir":
            there = path.exists()
            path.mkdir(parents=document["parents"], exist_ok=document["parents"])
            if not there:
                path.chmod(int(document.get("mode", "0755"), 8))
            return 200, {}, {}
        if not path.exists():
            return 404, {"error": "not_found", "message": "no such file"}, {}
        if action == "":
            return self._download(path, call) if method == "GET" else self._remove(path, query)
        if action == "stat":
            return 200, self._stat(path), {}
        if action == "list":
            names = sorted(path.iterdir())
            begin = int(query.get("cursor") or 0)
            part = names[begin : begin + 2]  # pages of two, so that every test of a listing pages
            cursor = str(begin + 2) if begin + 2 < len(names) else None
            return 200, {"entries": [self._stat(item) for item in part], "cursor": cursor}, {}
        if action == "move":
            path.rename(self._inside(document["target"]))
        elif action == "chmod":
            path.chmod(int(document["mode"], 8))
        return 200, {}, {}

    def _inside(self, path: str) -> Path:
        return self._state.root / path.strip("/")

    def _remove(self, path: Path, query: dict[str, str]) -> Answer:
        if not path.is_dir():
            path.unlink()
        elif query.get("recursive") == "1":
            shutil.rmtree(path)
        elif any(path.iterdir()):
            return 409, {"error": "not_empty", "message": "not empty"}, {}
        else:
            path.rmdir()
        return 200, {}, {}

    def _download(self, path: Path, call: Call) -> Answer:
        fault = call.fault
        data = path.read_bytes()
        size, status, extra = len(data), 200, {"X-Sandlot-Mtime": str(path.stat().st_mtime)}
        window = call.headers.get("range", "").removeprefix("bytes=")
        if window:
            first, _, last = window.partition("-")
            if not first:
                begin, end = max(0, size - int(last)), size
            else:
                begin, end = int(first), int(last) + 1 if last else size
            if begin >= size:
                return 416, {"error": "range"}, {}
            data, status = data[begin:end], 206
            extra["Content-Range"] = f"bytes {begin}-{min(end, size) - 1}/{size}"
        if fault is not None and fault.cut is not None:
            head = f"HTTP/1.1 {status} OK\r\nContent-Length: {len(data)}\r\n"
            head += "".join(f"{key}: {value}\r\n" for key, value in extra.items())
            call.writer.write(head.encode() + b"\r\n" + data[: fault.cut])
            return None
        raw(call.writer, status, data, extra)
        call.whole = True
        return None

    def _stat(self, path: Path) -> dict[str, object]:
        about = path.stat()
        return {
            "path": "/" + str(path.relative_to(self._state.root)),
            "type": "dir" if path.is_dir() else "file",
            "size": about.st_size,
            "mode": f"{about.st_mode & 0o7777:04o}",
            "uid": about.st_uid,
            "gid": about.st_gid,
            "mtime": about.st_mtime,
        }
