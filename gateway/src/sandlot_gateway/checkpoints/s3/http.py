"""Sends requests to S3: signed, with timeouts, repeated when the store is overloaded or cannot be reached."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Mapping
from http.client import HTTPException
from urllib.parse import urlsplit
from xml.etree import ElementTree

import urllib3
from urllib3.exceptions import HTTPError

from sandlot_gateway.checkpoints.errors import StoreError, Trouble
from sandlot_gateway.checkpoints.s3.signing import Credentials, encoded_path, encoded_query, signed
from sandlot_gateway.data.dial import keep_alive_options
from sandlot_gateway.s3_place import Place

_CONNECT = 5.0  # seconds
ANSWER_WITHIN = 20.0  # seconds without a byte
_READ_WITHIN, _READ_TRY = (
    10.0,
    5.0,
)  # seconds of all tries of a read, as its caller waits, and of one without a byte
_READS = ("GET", "HEAD")
_PAUSES = (0.2, 0.8, None)  # seconds after each try
_AGAIN = (429, 500, 502, 503, 504)
_AGAIN_CODES = ("RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable")  # some with status 400
_CONNECTIONS = 32
_MAX_ANSWER = 16 << 20  # bytes, of a document or a page of names
_DENIED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "AllAccessDisabled")
_FULL = ("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "NoSpaceLeftOnDevice")


class Answer:
    """`status` is one that the caller said it expects, or 2xx."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Http:
    """The bucket's requests. `key` is below the place's prefix; an empty one is the bucket itself."""

    def __init__(
        self, place: Place, *, credentials: Credentials, answer_within: float = ANSWER_WITHIN
    ) -> None:
        self.place = place
        self._credentials = credentials
        self._host = urlsplit(place.endpoint).netloc
        self._answer_within = answer_within
        # Without keep-alive, connections that a NAT dropped while idle would fail one read after the other.
        options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), *keep_alive_options()]
        self._pool = urllib3.connection_from_url(
            place.endpoint, maxsize=_CONNECTIONS, retries=False, socket_options=options
        )

    def close(self) -> None:
        self._pool.close()

    def send(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        expected: tuple[int, ...] = (),
        within: float | None = None,
        patient: bool = False,
    ) -> Answer:
        """Return the answer. Raises StoreError for what is not expected.

        `within`: the seconds of the only try. `patient`: a read has as long as a write, since a writer needs it.
        """
        is_short = method in _READS and not patient
        until = time.monotonic() + _READ_WITHIN if is_short else math.inf
        for pause in _PAUSES if within is None else (None,):
            left = min(until - time.monotonic(), _READ_TRY if is_short else math.inf)
            try:
                answer = self.once(
                    method,
                    key,
                    query=query,
                    headers=headers,
                    body=body,
                    within=within if within is not None else max(0.1, min(self._answer_within, left)),
                )
                try:
                    data = answer.read(_MAX_ANSWER)
                finally:
                    answer.release_conn()
            except (HTTPError, HTTPException, ValueError) as error:  # ValueError: of a head that is none
                failure = self.unreachable(error)
            else:
                failed = answer.status >= 300 or (method == "POST" and data.rstrip().endswith(b"</Error>"))
                if answer.status in expected or not failed:
                    return Answer(answer.status, answer.headers, data)
                failure = self.failure(method, answer.status, data)
            if failure.trouble is not Trouble.DOWN or pause is None or time.monotonic() + pause > until:
                raise failure
            time.sleep(pause)
        raise AssertionError("the last pause is None")

    def once(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        within: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request once; return the answer before its body. Raises HTTPError and StoreError.

        `within`: seconds without a byte.
        """
        path = encoded_path(f"/{self.place.bucket}/{key}" if key else f"/{self.place.bucket}")
        asked = encoded_query(query or {})
        sent = signed(
            method,
            host=self._host,
            path=path,
            query=asked,
            headers=headers or {},
            body=body,
            region=self.place.region,
            keys=self._credentials.current(),
        )
        url = f"{path}?{asked}" if asked else path
        most = self._answer_within if within is None else within
        return self._pool.urlopen(
            method,
            url,
            headers=sent,
            body=body,
            timeout=urllib3.Timeout(connect=min(_CONNECT, most), read=most),
            preload_content=False,
            redirect=False,
            retries=False,
        )

    def unreachable(self, error: Exception) -> StoreError:
        """Return the error for a store that does not answer."""
        # Not the error's own text: it has the URL, and differs from try to try.
        return StoreError(
            f"the store of checkpoints at {self.place.endpoint} does not answer ({type(error).__name__}): try again,"
            " or tell the operator"
        )

    def failure(self, method: str, status: int, data: bytes) -> StoreError:
        """Return the error for an answer that is one."""
        bucket = self.place.bucket
        code = _code(data) or {403: "AccessDenied"}.get(status, "")
        if code == "NoSuchBucket":
            text = f"the bucket {bucket!r} of checkpoint_s3 does not exist: create it, or correct the setting"
            return StoreError(text, trouble=Trouble.REFUSED)
        if code in _DENIED or status == 401:
            text = (
                f"the store of checkpoints refuses {method} in the bucket {bucket!r} ({code or status}): correct its"
                " credentials or their rights"
            )
            return StoreError(text, trouble=Trouble.REFUSED)
        if code in _FULL or status == 507:
            text = f"the bucket {bucket!r} of checkpoints is full ({code or status}): free space or ask the operator"
            return StoreError(text, trouble=Trouble.FULL)
        told = f"{status} {code}".strip()
        if status in _AGAIN or status < 300 or code in _AGAIN_CODES:
            text = (
                f"the store of checkpoints is overloaded or broken ({told}): try again, or tell the operator"
            )
            return StoreError(text)
        text = f"the store of checkpoints answers {method} in the bucket {bucket!r} with {told}: tell the operator"
        return StoreError(text, trouble=Trouble.REFUSED)


def _code(data: bytes) -> str:
    try:
        return ElementTree.fromstring(data).findtext("Code") or ""
    except ElementTree.ParseError:
        return ""
