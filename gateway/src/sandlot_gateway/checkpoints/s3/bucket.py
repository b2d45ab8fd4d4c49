"""The operations on a bucket that the store of checkpoints needs. Keys are below the place's prefix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import msgspec

from sandlot_gateway.checkpoints.errors import StoreError, Trouble
from sandlot_gateway.checkpoints.s3.http import Answer, Http

_CHANGED = (404, 409, 412)  # of a conditional write


class Conflict(Exception):
    """Raised when an object is not as a conditional write or delete says."""


class Object(msgspec.Struct, frozen=True):
    """An object; `age` is the seconds since its last write, by the store's clock."""

    key: str
    etag: str
    age: float
    size: int = 0
    data: bytes = b""


class Upload(msgspec.Struct, frozen=True):
    """A multipart upload that has neither been completed nor aborted."""

    key: str
    id: str
    age: float


class Bucket:
    """Methods raise StoreError."""

    def __init__(self, http: Http) -> None:
        self.http = http
        self._prefix = http.place.prefix

    def get(self, key: str, *, within: float | None = None, patient: bool = False) -> Object | None:
        """Return a small object; `within` and `patient`: as those of Http.send."""
        answer = self.http.send("GET", self._prefix + key, expected=(404,), within=within, patient=patient)
        if answer.status == 404:
            self._check_bucket(answer)
            return None
        age = max(0.0, (_date(answer, "Date") - _date(answer, "Last-Modified")).total_seconds())
        return Object(key, _header(answer, "ETag"), age, len(answer.body), answer.body)

    def size(self, key: str, *, patient: bool = False) -> int | None:
        """Return the bytes of an object, or None; `patient`: as that of Http.send."""
        answer = self.http.send("HEAD", self._prefix + key, expected=(404,), patient=patient)
        return _number(_header(answer, "Content-Length")) if answer.status != 404 else None

    def put(self, key: str, data: bytes) -> None:
        self.http.send("PUT", self._prefix + key, body=data)

    def write(self, key: str, data: bytes, *, over: str | None, within: float | None = None) -> str:
        """Write an object if its ETag is `over`, or if it does not exist; return the new ETag. `within`: as of Http.send.

        Raises Conflict, also when the store has written it but its answer was lost: look what is there.
        """
        condition = {"if-match": over} if over is not None else {"if-none-match": "*"}
        answer = self.http.send(
            "PUT", self._prefix + key, headers=condition, body=data, expected=_CHANGED, within=within
        )
        if answer.status in _CHANGED:
            self._check_bucket(answer)
            raise Conflict(key)
        return _header(answer, "ETag")

    def delete(self, key: str) -> None:
        self.http.send("DELETE", self._prefix + key, expected=(404,))

    def delete_as(self, key: str, *, etag: str) -> None:
        """Delete an object that has this ETag. Raises Conflict if it has another."""
        answer = self.http.send("DELETE", self._prefix + key, headers={"if-match": etag}, expected=_CHANGED)
        if answer.status in (409, 412):
            raise Conflict(key)

    def list(self, prefix: str) -> Iterator[Object]:
        """Yield the objects below a prefix in the order of their keys, a request for each 1000."""
        query = {"list-type": "2", "prefix": self._prefix + prefix, "max-keys": "1000"}
        while True:
            answer, page = self._page(query)
            for found in page.iterfind("{*}Contents"):
                yield Object(
                    _text(found, "Key").removeprefix(self._prefix),
                    _text(found, "ETag"),
                    _age(answer, found, "LastModified"),
                    _number(_text(found, "Size")),
                )
            after = page.findtext("{*}NextContinuationToken")
            if page.findtext("{*}IsTruncated") != "true" or not after:
                return
            query["continuation-token"] = after

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """Yield the multipart uploads below a prefix that are under way, a request for each 1000."""
        query = {"uploads": "", "prefix": self._prefix + prefix, "max-uploads": "1000"}
        while True:
            answer, page = self._page(query)
            for found in page.iterfind("{*}Upload"):
                key = _text(found, "Key").removeprefix(self._prefix)
                yield Upload(key, _text(found, "UploadId"), _age(answer, found, "Initiated"))
            marker, after = page.findtext("{*}NextKeyMarker"), page.findtext("{*}NextUploadIdMarker")
            if page.findtext("{*}IsTruncated") != "true" or not marker:
                return
            query |= {"key-marker": marker, "upload-id-marker": after or ""}

    def begin_upload(self, key: str) -> str:
        """Begin a multipart upload; return its id."""
        answer = self.http.send("POST", self._prefix + key, query={"uploads": ""})
        return _text(_parsed(answer.body), "UploadId")

    def put_part(self, key: str, upload: str, *, number: int, data: bytes) -> str:
        """Write a part, from 1 on; return its ETag."""
        query = {"partNumber": str(number), "uploadId": upload}
        answer = self.http.send("PUT", self._prefix + key, query=query, body=data, expected=(404,))
        if answer.status == 404:
            raise self._gone()
        return _header(answer, "ETag")

    def complete_upload(self, key: str, upload: str, *, etags: Sequence[str]) -> None:
        """Let the parts become the object."""
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag)}</ETag></Part>"
            for number, etag in enumerate(etags, 1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        query = {"uploadId": upload}
        answer = self.http.send("POST", self._prefix + key, query=query, body=body, expected=(404,))
        if answer.status == 404 and self.size(key, patient=True) is None:
            raise self._gone()  # else an earlier try did it, and its answer was lost

    def abort_upload(self, key: str, upload: str) -> None:
        """Delete the parts; of an upload that is gone nothing is left to do."""
        self.http.send("DELETE", self._prefix + key, query={"uploadId": upload}, expected=(404,))

    def full_key(self, key: str) -> str:
        return self._prefix + key

    def _gone(self) -> StoreError:
        return StoreError("the checkpoint's upload is gone: another gateway took its writer for dead")

    def _page(self, query: dict[str, str]) -> tuple[Answer, ElementTree.Element]:
        answer = self.http.send("GET", "", query=query)
        return answer, _parsed(answer.body)

    def _check_bucket(self, answer: Answer) -> None:
        """Raise StoreError if not the object is missing, but its bucket."""
        if answer.status == 404 and b"NoSuchBucket" in answer.body:
            raise self.http.failure("GET", 404, answer.body)


def _parsed(data: bytes) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise _unusable("its answer is no XML") from error


def _text(element: ElementTree.Element, name: str) -> str:
    found = element.findtext(f"{{*}}{name}")
    if found is None:
        raise _unusable(f"its answer has no {name}")
    return found


def _age(answer: Answer, element: ElementTree.Element, name: str) -> float:
    text = _text(element, name)
    try:
        written = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return max(0.0, (_date(answer, "Date") - written).total_seconds())
    except (ValueError, TypeError) as error:  # TypeError: one of the two has no time zone
        raise _unusable(f"its {name} is no time: {text[:50]!r}") from error


def _header(answer: Answer, name: str) -> str:
    found = answer.headers.get(name)
    if found is None:
        raise _unusable(f"its answer has no header {name}")
    return found


def _date(answer: Answer, name: str) -> datetime:
    text = _header(answer, name)
    try:
        found = parsedate_to_datetime(text)
    except ValueError as error:
        raise _unusable(f"its header {name} is no time: {text[:50]!r}") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise _unusable(f"its answer has a size that is no number: {text[:50]!r}")
    return int(text)


def _unusable(why: str) -> StoreError:
    text = f"the store of checkpoints does not speak S3 as expected ({why}): correct checkpoint_s3_endpoint"
    return StoreError(text, trouble=Trouble.REFUSED)
