"""Requests to the API server through `kubectl proxy`, with their failures as values."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

from .deadline import NEVER, OVER, Deadline
from .doc import Doc
from .kubectl import CannotRun

JSON = "application/json"
# The answer has no data: the values of a Secret do not leave the API server.
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_SECONDS = 30.0
_PAGE = 500
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class Unread:
    """What could not be read: why, and whether it was for want of rights."""

    reason: str
    denied: bool = False
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of one kind."""

    items: list[Doc] = field(default_factory=list[Doc])


Reading = Listing | Unread


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    date: float | None  # of the API server's clock

    def reason(self) -> Unread:
        """Return why it is no success."""
        try:
            document = json.loads(self.body)
            said = str(document["message"])
        except (ValueError, KeyError, TypeError):
            said = " ".join(self.body[:300].decode(errors="replace").split())
        return Unread(
            f"{self.status}: {said}" if said else f"status {self.status}",
            self.status == 403,
            self.status == 404,
        )


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass(frozen=True, slots=True)
class Api:
    """`socket` is that of `kubectl proxy`, `errors` the file with what it says of failures."""

    socket: Path
    errors: Path
    deadline: Deadline = NEVER

    def ask(
        self, method: str, path: str, *, accept: str = JSON, body: Mapping[str, Any] | None = None
    ) -> Answer:
        """Send one request. Raises OSError and http.client.HTTPException."""
        connection = _Connection(self.socket, self.deadline.within(_SECONDS))
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Accept": accept, "Content-Type": JSON})
            answer = connection.getresponse()
            date = answer.headers.get("Date")
            seconds = parsedate_to_datetime(date).timestamp() if date else None
            return Answer(answer.status, self._body(answer), seconds)
        finally:
            connection.close()

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        """Read piece by piece: the connection's timeout begins anew with each."""
        pieces: list[bytes] = []
        while piece := answer.read(_PIECE):
            pieces.append(piece)
            if self.deadline.passed:
                raise TimeoutError
        if answer.length:  # reading by pieces does not tell of an end before the announced one
            raise http.client.IncompleteRead(b"", answer.length)
        return b"".join(pieces)

    def first(self, path: str) -> tuple[Doc, float | None]:
        """Ask for what everybody may read; return it and the API server's time. Raises CannotRun."""
        answer = self._tried("GET", path)
        if isinstance(answer, Unread):
            raise CannotRun(
                f"the API server does not answer: {answer.reason}: check the cluster and the context"
            )
        if answer.status == 401:
            raise CannotRun(
                "the API server does not accept kubectl's credentials: log in to the cluster again"
            )
        if answer.status >= 500:
            said = " ".join(self.errors.read_text(errors="replace").split()) or answer.reason().reason
            raise CannotRun(f"the API server does not answer: {said}: check the cluster and the context")
        found = _object(answer)
        if isinstance(found, Unread):
            raise CannotRun(f"the API server refuses {path}: {found.reason}: check the context")
        return found, answer.date

    def list(
        self,
        base: str,
        plural: str,
        *,
        namespace: str | None = None,
        selector: str = "",
        fields: str = "",
        accept: str = JSON,
    ) -> Reading:
        """Return all objects."""
        kept: list[Doc] = []
        for items in self.pages(
            base, plural, namespace=namespace, selector=selector, fields=fields, accept=accept
        ):
            if isinstance(items, Unread):
                return items
            kept += items
        return Listing(kept)

    def pages(
        self,
        base: str,
        plural: str,
        *,
        namespace: str | None = None,
        selector: str = "",
        fields: str = "",
        accept: str = JSON,
    ) -> Iterator[Sequence[Doc] | Unread]:
        """Yield the objects page by page, or at last why one cannot be read."""
        inside = f"/namespaces/{quote(namespace)}" if namespace else ""
        chosen = {"labelSelector": selector, "fieldSelector": fields}
        query = {"limit": str(_PAGE)} | {name: value for name, value in chosen.items() if value}
        while True:
            found = self.get(f"{base}{inside}/{plural}?{urlencode(query)}", accept=accept)
            if isinstance(found, Unread):
                yield found
                return
            yield found.docs("items")
            if not (more := found.text("metadata", "continue")):
                return
            query["continue"] = more

    def get(self, path: str, *, accept: str = JSON) -> Doc | Unread:
        answer = self._tried("GET", path, accept=accept)
        return answer if isinstance(answer, Unread) else _object(answer)

    def post(self, path: str, body: Mapping[str, Any]) -> Doc | Unread:
        answer = self._tried("POST", path, body=body)
        return answer if isinstance(answer, Unread) else _object(answer)

    def put(self, path: str, body: Mapping[str, Any]) -> Doc | Unread:
        answer = self._tried("PUT", path, body=body)
        return answer if isinstance(answer, Unread) else _object(answer)

    def text(self, path: str) -> str | Unread:
        answer = self._tried("GET", path, accept="*/*")
        if isinstance(answer, Unread):
            return answer
        return answer.body.decode(errors="replace") if answer.status == 200 else answer.reason()

    def _tried(
        self, method: str, path: str, *, accept: str = JSON, body: Mapping[str, Any] | None = None
    ) -> Answer | Unread:
        if self.deadline.passed:
            return Unread(OVER)
        try:
            return self.ask(method, path, accept=accept, body=body)
        except (OSError, http.client.HTTPException) as error:
            if self.deadline.passed:
                return Unread(OVER)
            return Unread(f"{type(error).__name__}: {error}")


def _object(answer: Answer) -> Doc | Unread:
    if not 200 <= answer.status < 300:
        return answer.reason()
    try:
        value: object = json.loads(answer.body)
    except ValueError:
        return Unread("the answer is not JSON")
    return Doc(cast(dict[str, Any], value)) if isinstance(value, dict) else Unread("the answer is no object")
