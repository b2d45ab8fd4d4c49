"""Pushes an OCI archive to a registry over plain HTTP: `push.py HOST:PORT ARCHIVE`; needs the standard library alone."""

from __future__ import annotations

import http.client
import json
import sys
import tarfile
import time
from typing import IO
from urllib.parse import urlsplit


class PushError(Exception):
    """The registry did not take something; the message says what."""


def connect(host: str, *, seconds: float = 20) -> http.client.HTTPConnection:
    """A connection to a registry that may have been started a moment ago."""
    deadline = time.monotonic() + seconds
    while True:
        connection = http.client.HTTPConnection(host, timeout=60)
        try:
            connection.request("GET", "/v2/")
            connection.getresponse().read()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return connection


def _call(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    *,
    body: bytes | IO[bytes] | None = None,
    headers: dict[str, str] | None = None,
    accept: tuple[int, ...],
) -> http.client.HTTPResponse:
    connection.request(method, path, body=body, headers=headers or {})
    response = connection.getresponse()
    answer = response.read()
    if response.status not in accept:
        raise PushError(f"{method} {path}: {response.status} {answer[:300].decode(errors='replace')}")
    return response


def push(host: str, archive: str) -> str:
    """Pushes the archive's image under its own path and tag, and gives the name to pull it by."""
    connection = connect(host)
    with tarfile.open(archive) as tar:

        def blob(digest: str) -> IO[bytes]:
            data = tar.extractfile("blobs/" + digest.replace(":", "/"))
            if data is None:
                raise PushError(f"{archive}: has no blob {digest}")
            return data

        index = tar.extractfile("index.json")
        if index is None:
            raise PushError(f"{archive}: has no index.json")
        entry = json.load(index)["manifests"][0]
        reference = entry["annotations"]["io.containerd.image.name"].partition("/")[2]
        path, _, tag = reference.rpartition(":")
        manifest = blob(entry["digest"]).read()
        document = json.loads(manifest)
        for part in (document["config"], *document["layers"]):
            digest = part["digest"]
            there = _call(connection, "HEAD", f"/v2/{path}/blobs/{digest}", accept=(200, 404))
            if there.status == 200:
                continue
            begun = _call(connection, "POST", f"/v2/{path}/blobs/uploads/", accept=(202,))
            place = urlsplit(begun.headers["Location"])
            query = f"{place.query}&digest={digest}" if place.query else f"digest={digest}"
            size = {"Content-Length": str(part["size"]), "Content-Type": "application/octet-stream"}
            _call(connection, "PUT", f"{place.path}?{query}", body=blob(digest), headers=size, accept=(201,))
        kind = {"Content-Type": entry["mediaType"]}
        _call(connection, "PUT", f"/v2/{path}/manifests/{tag}", body=manifest, headers=kind, accept=(201,))
    return f"{path}:{tag}"


if __name__ == "__main__":
    print(push(sys.argv[1], sys.argv[2]))
