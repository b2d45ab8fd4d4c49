"""Pushes OCI images to a registry over plain HTTP: `push.py HOST:PORT ARCHIVE_OR_LAYOUT`; needs the standard library alone."""

from __future__ import annotations

import http.client
import json
import os
import sys
import tarfile
import time
from collections.abc import Callable
from typing import IO, Any
from urllib.parse import urlsplit


class PushError(Exception):
    """The registry did not take something; the message says what."""


def connect(host: str, *, seconds: float = 120) -> http.client.HTTPConnection:
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


def push(host: str, source: str) -> list[str]:
    """Pushes the images of an archive or a layout's directory under their own paths and tags; gives the names to pull."""
    connection = connect(host)
    if os.path.isdir(source):
        return _push(connection, lambda name: open(os.path.join(source, name), "rb"))
    with tarfile.open(source) as tar:

        def member(name: str) -> IO[bytes]:
            data = tar.extractfile(name)
            if data is None:
                raise PushError(f"{source}: has no {name}")
            return data

        return _push(connection, member)


def _push(connection: http.client.HTTPConnection, member: Callable[[str], IO[bytes]]) -> list[str]:
    with member("index.json") as index:
        entries = json.load(index)["manifests"]
    return [_push_image(connection, member, entry) for entry in entries]


def _push_image(
    connection: http.client.HTTPConnection, member: Callable[[str], IO[bytes]], entry: dict[str, Any]
) -> str:
    def blob(digest: str) -> IO[bytes]:
        return member("blobs/" + digest.replace(":", "/"))

    reference = entry["annotations"]["io.containerd.image.name"].partition("/")[2]
    path, _, tag = reference.rpartition(":")
    _push_manifest(connection, blob, path, tag, entry)
    return f"{path}:{tag}"


def _push_manifest(
    connection: http.client.HTTPConnection,
    blob: Callable[[str], IO[bytes]],
    path: str,
    reference: str,
    entry: dict[str, Any],
) -> None:
    """Pushes what a manifest, or an index of several, refers to, and then itself."""
    with blob(entry["digest"]) as data:
        manifest = data.read()
    document = json.loads(manifest)
    if "manifests" in document:
        for each in document["manifests"]:
            _push_manifest(connection, blob, path, each["digest"], each)
    else:
        for part in (document["config"], *document["layers"]):
            _push_blob(connection, blob, path, part)
    kind = {"Content-Type": entry["mediaType"]}
    _call(connection, "PUT", f"/v2/{path}/manifests/{reference}", body=manifest, headers=kind, accept=(201,))


def _push_blob(
    connection: http.client.HTTPConnection, blob: Callable[[str], IO[bytes]], path: str, part: dict[str, Any]
) -> None:
    digest = part["digest"]
    there = _call(connection, "HEAD", f"/v2/{path}/blobs/{digest}", accept=(200, 404))
    if there.status == 200:
        return
    begun = _call(connection, "POST", f"/v2/{path}/blobs/uploads/", accept=(202,))
    place = urlsplit(begun.headers["Location"])
    query = f"{place.query}&digest={digest}" if place.query else f"digest={digest}"
    size = {"Content-Length": str(part["size"]), "Content-Type": "application/octet-stream"}
    with blob(digest) as data:
        _call(connection, "PUT", f"{place.path}?{query}", body=data, headers=size, accept=(201,))


if __name__ == "__main__":
    print("\n".join(push(sys.argv[1], sys.argv[2])))
